"""Numbers of a step against plain sums."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.groups import Group, Prompt, Request
from pods_jax.learner import Batch
from pods_jax.training.metrics import (
    candidate_metrics,
    count_generated,
    mismatch_metrics,
    new_totals,
    rollout_metrics,
    staleness_metrics,
)

RNG = np.random.default_rng(0)


def group(rewards, first=0, uid=0):
    n = len(rewards)
    return Group(
        request=Request(Prompt(uid, uid, "", "", "", (1,)), n, first=first),
        tokens=np.zeros((n, 4), int),
        logprobs=np.zeros((n, 4), np.float32),
        lengths=np.arange(1, n + 1),
        truncated=np.zeros(n, bool),
        texts=("",) * n,
        rewards=np.float32(rewards),
        correct=np.float32(rewards) == 1,
        policy_versions=np.zeros(n, int),
    )


def batch(lengths, versions, logprobs):
    ints = jnp.zeros((len(lengths), 1), jnp.int32)
    return Batch(
        prompts=ints,
        prompt_lengths=ints[:, 0],
        completions=jnp.zeros(logprobs.shape, jnp.int32),
        lengths=jnp.asarray(lengths),
        advantages=jnp.zeros(lengths.shape),
        behaviour_logprobs=jnp.asarray(logprobs),
        versions=jnp.asarray(versions),
    )


def test_the_mismatch_is_of_the_current_policys_rollouts_and_older_ones_stand_apart():
    lengths = np.array([[3, 1], [0, 2]])
    versions = np.array([[7, 5], [0, 7]])
    behaviour, before = np.float32(RNG.normal(size=(2, 2, 2, 4)))
    metrics = mismatch_metrics([jnp.asarray(before)], [batch(lengths, versions, behaviour)], 7)
    gaps = np.abs(behaviour - before)
    fresh = np.concatenate([gaps[0, 0, :3], gaps[1, 1, :2]])
    assert metrics == {
        "sampling/sampling_logp_difference/mean": pytest.approx(fresh.mean(), rel=1e-5),
        "sampling/sampling_logp_difference/max": pytest.approx(fresh.max(), rel=1e-5),
        "staleness/logp_difference_mean/2": pytest.approx(gaps[0, 1, 0], rel=1e-5),
    }


def test_the_deviation_of_rewards_is_of_all_of_them_as_in_trl():
    groups = [group([1.0, 1.0]), group([0.0, 0.0, np.nan], uid=1)]
    metrics = rollout_metrics(groups)
    assert metrics["reward_std"] == pytest.approx(np.std([1, 1, 0, 0], ddof=1))
    assert metrics["frac_reward_zero_std"] == 1.0
    assert metrics["frac_reward_invalid"] == pytest.approx(0.2)


def test_the_kept_mass_is_over_a_groups_own_tokens():
    masses = np.float32([[0.5, 9, 9, 9], [0.25, 0.75, 9, 9]])
    reshaped = dataclasses.replace(group([0.0, 1.0]), drawn_logprobs=-np.log(masses))
    metrics = rollout_metrics([reshaped])
    assert metrics["sampling/kept_mass/mean"] == pytest.approx(0.5)
    assert metrics["sampling/kept_mass/min"] == pytest.approx(0.25)
    assert not any(name.startswith("sampling/") for name in rollout_metrics([group([0.0, 1.0])]))


def test_candidates_are_the_first_requests_of_prompts():
    groups = [group([1, 1]), group([0, 0, 1, 0], uid=1), *(group([0] * 3, uid=uid) for uid in (2, 3))]
    assert candidate_metrics([*groups, group([1, 1], first=2)]) == {
        "candidates/accuracy": pytest.approx((1 + 0.25 + 0 + 0) / 4),
        "candidates/frac_all_right": 1 / 4,
        "candidates/frac_all_wrong": 2 / 4,
    }
    assert candidate_metrics([group([1, 1], first=2)]) == {}


def test_variance_of_a_group_is_of_its_finite_rewards():
    groups = [group([0.5, np.nan, 0.5]), group([0.0, 1.0], uid=1), group([np.nan], uid=2)]
    assert rollout_metrics(groups)["frac_reward_zero_std"] == pytest.approx(2 / 3)


def test_ages_are_of_the_trained_rollouts():
    assert staleness_metrics([np.array([4, 4]), np.array([1])], 5) == {
        "staleness/mean": pytest.approx(2.0),
        "staleness/max": 4.0,
    }


def test_a_round_is_counted_where_something_was_generated():
    totals = new_totals()
    for groups in ([], [group([0, 1, 0, 1])], [], [group([1, 1, 0, 1])]):
        count_generated(totals, groups)
    assert totals["rounds"] == 2
    assert totals["rollouts/generated"] == 8
