"""What the step hands to selection, and what it makes of the statistics' scope."""

import jax
import numpy as np
import pytest

from pods_jax.config import from_mapping
from pods_jax.records import Group, Prompt, Request
from pods_jax.training.step import select_batch

RNG = np.random.default_rng(0)
REWARDS = np.float32([[0, 1, 0, 0, 0.5, 0, 1, 0], [1, 1, 0, 1, 1, 1, 1, 0.25]])
LENGTHS = np.array([[4, 3, 4, 2, 1, 4, 4, 4], [1, 2, 4, 4, 3, 4, 4, 4]])


def group(uid):
    logprobs = np.float32(RNG.normal(-2, 1, (8, 4)))
    return Group(
        request=Request(Prompt(uid, uid, "", "", "", (1, 2)), 8),
        tokens=np.arange(32).reshape(8, 4),
        logprobs=logprobs,
        lengths=LENGTHS[uid],
        truncated=np.zeros(8, bool),
        texts=("",) * 8,
        rewards=REWARDS[uid],
        correct=REWARDS[uid] == 1,
        policy_versions=np.zeros(8, int),
    )


GROUPS = [group(0), group(1)]


def selected(tiny, rule, **objective):
    tiny.selection.rule = rule
    tiny.objective.update(objective)
    return select_batch(from_mapping(tiny)[0], GROUPS, jax.random.key(0))


def members(batch):
    """Which rollouts were kept, from their tokens."""
    return np.asarray(batch.completions)[..., 0] // 4


def test_rules_see_lengths_and_the_entropy_of_a_rollouts_own_tokens(tiny):
    assert np.sort(members(selected(tiny, "shortest")[0]))[:, :3].tolist() == [[1, 3, 4], [0, 1, 4]]
    entropies = [[-row[:n].mean() for row, n in zip(g.logprobs, g.lengths, strict=True)] for g in GROUPS]
    expected = np.sort(np.argsort(entropies, axis=1)[:, 4:])
    np.testing.assert_array_equal(np.sort(members(selected(tiny, "entropy")[0])), expected)


@pytest.mark.parametrize("statistics", ["kept", "group"])
def test_statistics_are_over_the_kept_or_the_group(tiny, statistics):
    batch, metrics = selected(tiny, "max_variance", statistics=statistics)
    kept = np.take_along_axis(np.float64(REWARDS), members(batch), 1)
    over = kept if statistics == "kept" else np.float64(REWARDS)
    expected = (kept - over.mean(1, keepdims=True)) / (over.std(1, ddof=1, keepdims=True) + 1e-4)
    np.testing.assert_allclose(batch.advantages, expected, rtol=1e-5)
    assert metrics["selection/num_high"] == (kept > kept.mean(1, keepdims=True)).sum(1).mean()
    assert metrics["selection/num_invalid"] == metrics["selection/frac_degenerate"] == 0
