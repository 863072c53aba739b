"""A step's rollouts in several optimizer steps, against updates that are made one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.config.validate import validate_on_devices, violations
from pods_jax.errors import UserError
from pods_jax.learner.batch import make_batch, update_shares
from pods_jax.rewards import RewardPool
from pods_jax.rollout import token_logprobs
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run
from pods_jax.training.step import collect_groups, optimise, select_groups


@pytest.fixture
def config(tiny):
    tiny.objective.steps_per_generation, tiny.selection.rule, tiny.selection.num_kept = 2, "all", 8
    tiny.reward.parts, tiny.reward.functions = {"odd": 1.0}, {"odd": f"{__name__}:every_other"}
    config, problems = from_mapping(tiny)
    assert not problems + violations(config)
    return config


def every_other(prompts, completions, **_):
    return [float(i % 2) for i in range(len(completions))]


def collected(config):
    with RewardPool(1) as pool:
        run = make_run(config, load_data(config), pool, lambda *_: None)
        _, groups = collect_groups(run, 1)
    kept, _ = select_groups(config, groups, jax.random.key(1))
    return run, kept


def row_logprobs(run, params, batch):
    """[P, m, T], of rows of prompt and completion."""
    P, m, T = batch.completions.shape
    rows = np.zeros((P * m, batch.prompts.shape[1] + T), np.int32)
    for i, (prompt, size) in enumerate(zip(batch.prompts, batch.prompt_lengths, strict=True)):
        rows[i * m : (i + 1) * m, :size] = prompt[:size]
        rows[i * m : (i + 1) * m, size : size + T] = batch.completions[i]
    sizes = np.repeat(batch.prompt_lengths, m), batch.lengths.ravel()
    found = token_logprobs(run.model, params, jnp.asarray(rows), *map(jnp.asarray, sizes), max_completion_length=T)
    return found.reshape(P, m, T)


def difference(a, b):
    return max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_pass_is_one_update_a_batch_against_the_policy_before_all(config):
    run, kept = collected(config)
    other, _ = collected(config)
    shares = update_shares(config, kept)
    first, second = (make_batch(config, share, 1) for share in shares)
    old = row_logprobs(other, other.state.params, second)
    state, _, _ = other.update(other.state, first, None)
    on_policy, _, _ = other.update(jax.tree.map(jnp.copy, state), second, None)
    state, _, _ = other.update(state, second._replace(old_logprobs=old), None)
    metrics, changed = optimise(run, shares)
    assert changed == [True, True]
    assert int(run.state.step) == 2
    assert difference(run.state.params, state.params) < 1e-5
    assert difference(run.state.params, on_policy.params) > 1e-4  # the old policy matters
    assert metrics["clip_ratio/region_mean"] > 0


def test_metrics_are_means_over_the_last_pass(config):
    config = dataclasses.replace(config, objective=dataclasses.replace(config.objective, num_iterations=2))
    run, kept = collected(config)
    taken, update = [], run.update

    def recorded(*arguments):
        result = update(*arguments)
        taken.append(jax.device_get(result[1]))
        return result

    run.update = recorded
    metrics, _ = optimise(run, update_shares(config, kept))
    assert len(taken) == 4
    assert metrics["entropy"] == pytest.approx(np.mean([m["entropy"] for m in taken[2:]]))
    assert metrics["sampling/sampling_logp_difference/max"] < 1e-4  # before the first update, not between two of them


@pytest.mark.parametrize("num_groups", [0, 1, 2, 3, 4, 7])
def test_every_rollout_is_in_one_batch_and_batches_are_about_equal(config, num_groups):
    _, kept = collected(config)
    kept = (kept * 2)[:num_groups]
    batches = [make_batch(config, share, 1) for share in update_shares(config, kept)]
    assert len(batches) == (1 if num_groups < 2 else 2)
    found = np.concatenate([b.completions[b.lengths > 0] for b in batches])
    expected = np.concatenate([[], *(k.group.tokens.ravel() for k in kept)])
    assert found.ravel().tolist() == expected.tolist()
    groups = [int((b.lengths > 0).any(1).sum()) for b in batches]
    assert max(groups) - min(groups) <= 1
    assert all(b.lengths.shape[0] == 2 for b in batches if (b.lengths > 0).any(1).sum() <= 2)


def test_the_groups_of_a_step_must_split(tiny):
    tiny.objective.steps_per_generation = 3
    assert violations(from_mapping(tiny)[0]) == [
        "objective.steps_per_generation = 3 must divide rollout.num_prompts = 4"
    ]
    tiny.objective.steps_per_generation = 2
    validate_on_devices(from_mapping(tiny)[0], 2)
    with pytest.raises(UserError, match=r"= None \(m = 4\) x 4 devices must divide the 2 x 4 rollouts of an update"):
        validate_on_devices(from_mapping(tiny)[0], 4)
