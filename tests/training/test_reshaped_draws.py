"""Rollouts that are drawn from a reshaped policy: what is recorded of it, and what each part of a step makes of it."""

import dataclasses

import jax
import numpy as np
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.config.validate import violations
from pods_jax.learner.batch import make_batch
from pods_jax.rewards import RewardPool
from pods_jax.training.evaluation import evaluate
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run
from pods_jax.training.step import collect_groups, optimise, select_groups


@pytest.fixture
def reshaped(tiny):
    tiny.rollout.top_p, tiny.rollout.repetition_penalty = 0.7, 1.5
    tiny.selection.rule, tiny.selection.num_kept = "all", 8
    tiny.reward.parts, tiny.reward.functions = {"odd": 1.0}, {"odd": f"{__name__}:every_other"}
    return tiny


def every_other(prompts, completions, **_):
    return [float(i % 2) for i in range(len(completions))]


def built(tiny):
    config, problems = from_mapping(tiny)
    assert not problems + violations(config)
    return config


def run_of(config, pool):
    return make_run(config, load_data(config), pool, lambda *_: None)


def own(groups):
    return [np.arange(g.tokens.shape[1]) < g.lengths[:, None] for g in groups]


def test_the_importance_weight_is_about_the_distribution_drawn_from_and_the_mismatch_about_the_full_one(reshaped):
    """Before the first update, policy over behaviour is the probability mass that each draw kept."""
    reshaped.objective.importance_sampling_cap = 1e6
    config = built(reshaped)
    with RewardPool(1) as pool:
        run = run_of(config, pool)
        _, groups = collect_groups(run, 1)
        kept, _ = select_groups(config, groups, jax.random.key(1))
        metrics, _ = optimise(run, [kept])
    masses = np.concatenate(
        [np.exp(g.logprobs - g.drawn_logprobs)[tokens] for g, tokens in zip(groups, own(groups), strict=True)]
    )
    assert masses.mean() < 0.95
    assert metrics["sampling/importance_sampling_ratio/mean"] == pytest.approx(masses.mean(), rel=1e-4)
    assert metrics["sampling/sampling_logp_difference/max"] < 1e-4


def test_a_batch_has_both_log_probabilities(reshaped):
    reshaped.objective.old_logprobs = "behaviour"
    config = built(reshaped)
    with RewardPool(1) as pool:
        _, groups = collect_groups(run_of(config, pool), 1)
    kept, _ = select_groups(config, groups, jax.random.key(1))
    batch = make_batch(config, kept, 1)
    T = batch.completions.shape[-1]
    for i, k in enumerate(kept):
        np.testing.assert_array_equal(batch.behaviour_logprobs[i], k.group.drawn_logprobs[k.rows, :T])
        np.testing.assert_array_equal(batch.sampler_logprobs[i], k.group.logprobs[k.rows, :T])
    np.testing.assert_array_equal(batch.old_logprobs, batch.behaviour_logprobs)
    full = make_batch(config, [k._replace(group=dataclasses.replace(k.group, drawn_logprobs=None)) for k in kept], 1)
    np.testing.assert_array_equal(full.sampler_logprobs, full.behaviour_logprobs)


def test_stop_strings_end_rollouts_and_evaluations_that_have_none_of_their_own(reshaped):
    reshaped.rollout.stop = ("1",)
    config = built(reshaped)
    with RewardPool(1) as pool:
        run = run_of(config, pool)
        _, groups = collect_groups(run, 1)
        texts = [text for g in groups for text in g.texts]
        assert any(text.endswith("1") for text in texts)
        assert not any("1" in text[:-1] for text in texts)
        short = evaluate(run)["mean_length"]
        run.config = dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, stop=()))
        assert short < evaluate(run)["mean_length"]
