"""From groups of any sizes to the learner's batch: who is kept, with which advantages, laid out how."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.config.schema import default_config, from_mapping
from pods_jax.groups import Group, Prompt, Request
from pods_jax.learner.batch import Kept, make_batch, num_blocks
from pods_jax.training.step import select_groups

RNG = np.random.default_rng(0)
REWARDS = np.float32([[0, 1, 0, 0, 0.5, 0, 1, 0], [1, 1, 0, 1, 1, 1, 1, 0.25]])
LENGTHS = np.array([[4, 3, 4, 2, 1, 4, 4, 4], [1, 2, 4, 4, 3, 4, 4, 4]])


def group(uid, rewards, lengths=None, **fields):
    """Rollout i of group `uid` is known by its first token, 100 uid + i."""
    n = len(rewards)
    defaults = {
        "request": Request(Prompt(uid, uid, "", "", "", (1, 2, 3)[: uid % 3 + 1]), n),
        "tokens": np.repeat(100 * uid + np.arange(n)[:, None], 4, 1),
        "logprobs": np.float32(RNG.normal(-2, 1, (n, 4))),
        "lengths": np.full(n, 4) if lengths is None else lengths,
        "truncated": np.zeros(n, bool),
        "texts": ("",) * n,
        "rewards": np.float32(rewards),
        "correct": np.float32(rewards) == 1,
        "policy_versions": np.zeros(n, int),
    }
    return Group(**defaults | fields)


GROUPS = [group(0, REWARDS[0], LENGTHS[0]), group(1, REWARDS[1], LENGTHS[1])]


def configured(tiny, rule, **changes):
    tiny.selection.rule = rule
    tiny.update_from_flattened_dict(changes)
    return from_mapping(tiny)[0]


def selected(tiny, groups, rule, **changes):
    return select_groups(configured(tiny, rule, **changes), groups, jax.random.key(0))


def advantages(rewards):
    rewards = np.float64(rewards)
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)


# ---------------------------------------------------------------- selection


def test_rules_see_lengths_and_the_entropy_of_a_rollouts_own_tokens(tiny):
    kept, _ = selected(tiny, GROUPS, "shortest")
    assert [np.sort(k.rows)[:3].tolist() for k in kept] == [[1, 3, 4], [0, 1, 4]]
    kept, _ = selected(tiny, GROUPS, "entropy")
    for k in kept:
        entropies = [-row[:n].mean() for row, n in zip(k.group.logprobs, k.group.lengths, strict=True)]
        np.testing.assert_array_equal(np.sort(k.rows), np.sort(np.argsort(entropies)[4:]))


@pytest.mark.parametrize("statistics", ["kept", "group"])
def test_statistics_are_over_the_kept_or_the_group(tiny, statistics):
    kept, metrics = selected(tiny, GROUPS, "max_variance", **{"objective.statistics": statistics})
    for k in kept:
        own = k.group.rewards[k.rows]
        expected = advantages(own) if statistics == "kept" else advantages(k.group.rewards)[k.rows]
        np.testing.assert_allclose(k.advantages, expected, rtol=1e-5)
    rewards = np.stack([k.group.rewards[k.rows] for k in kept])
    assert metrics["selection/num_high"] == (rewards > rewards.mean(1, keepdims=True)).sum(1).mean()
    assert metrics["selection/num_invalid"] == metrics["selection/frac_degenerate"] == 0


SIZES = [3, 5, 8, 1]


@pytest.mark.parametrize("rule", ["all", "max_variance", "random", "percentile", "max_abs_advantage"])
@pytest.mark.parametrize("statistics", ["kept", "group"])
def test_groups_of_different_sizes_keep_what_they_have_and_compare_with_their_own(tiny, rule, statistics):
    groups = [group(i, RNG.normal(size=n)) for i, n in enumerate(SIZES)]
    kept, metrics = selected(tiny, groups, rule, **{"objective.statistics": statistics})
    assert [len(k.rows) for k in kept] == (SIZES if rule == "all" else [3, 4, 4, 1])
    for k in kept[:3]:
        assert len(set(k.rows)) == len(k.rows)
        own = k.group.rewards[k.rows]
        expected = advantages(own) if statistics == "kept" else advantages(k.group.rewards)[k.rows]
        np.testing.assert_allclose(k.advantages, expected, rtol=1e-4)
    assert kept[3].advantages == 0  # a group of one
    rewards = np.concatenate([k.group.rewards[k.rows] for k in kept])
    np.testing.assert_allclose(metrics["selection/kept_reward"], rewards.mean(), rtol=1e-5)
    group_variance = np.mean([g.rewards.var() for g in groups])
    np.testing.assert_allclose(metrics["selection/group_variance"], group_variance, rtol=1e-5)


SOME_REWARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, np.nan, np.inf]), min_size=1, max_size=8)


@given(st.lists(SOME_REWARDS, min_size=2, max_size=3))  # one compiled shape
def test_rewards_that_are_not_finite_are_left_out_and_counted(rewards):
    config = default_config()
    config.selection.rule, config.selection.num_kept = "max_variance", 4
    groups = [group(i, r) for i, r in enumerate([[1.0, np.nan, 0.0, 0.5, 1.0], *rewards])]
    kept, metrics = select_groups(from_mapping(config)[0], groups, jax.random.key(0))
    for k in kept:
        finite = k.group.rewards[np.isfinite(k.group.rewards)]
        assert len(k.rows) == min(4, len(finite))
        assert np.isfinite(k.group.rewards[k.rows]).all()
        assert np.isfinite(k.advantages).all()
        if len(k.rows) > 1:
            np.testing.assert_allclose(k.advantages, advantages(k.group.rewards[k.rows]), rtol=1e-4, atol=1e-6)
    assert metrics["selection/num_invalid"] == sum((~np.isfinite(g.rewards)).sum() for g in groups)
    assert np.isfinite(list(metrics.values())).all()


def test_a_truncated_completion_votes_and_is_not_trained_on(tiny):
    masked = group(0, [1, 0, 0, 1], truncated=np.array([True, False, False, False]))
    kept, _ = selected(tiny, [masked], "all", **{"objective.mask_truncated_completions": True})
    assert kept[0].rows.tolist() == [1, 2, 3]
    np.testing.assert_allclose(kept[0].advantages, advantages([1, 0, 0, 1])[1:], rtol=1e-5)


def test_truncated_completions_are_no_candidates_of_a_rule(tiny):
    """Rewards of 4 ones and 4 zeros, 3 of which are truncated: the update has both sides, and metrics are of it."""
    truncated = np.arange(8) >= 5
    masked = group(0, [1, 1, 1, 1, 0, 0, 0, 0], truncated=truncated)
    changes = {"objective.mask_truncated_completions": True, "selection.num_kept": 4}
    kept, metrics = selected(tiny, [masked], "max_variance", **changes)
    assert not truncated[kept[0].rows].any()
    rewards = masked.rewards[kept[0].rows]
    assert sorted(rewards) == [0, 1, 1, 1]
    np.testing.assert_allclose(kept[0].advantages, advantages(rewards), rtol=1e-5)
    assert metrics["selection/kept_variance"] == pytest.approx(rewards.var())
    assert metrics["selection/group_variance"] == pytest.approx(masked.rewards[~truncated].var())


def test_completions_that_are_masked_whole_are_sequences_without_tokens(tiny):
    masked = group(0, [1, 0, 0, 1], truncated=np.array([True, False, False, False]), lengths=np.array([4, 2, 3, 1]))
    config = configured(tiny, "all", **{"objective.mask_truncated_completions": True})
    kept, _ = select_groups(config, [masked], jax.random.key(0))
    assert kept[0].masked.tolist() == [0]
    batch = make_batch(config, kept, 1)
    assert sorted(batch.lengths[batch.lengths > 0]) == [1, 2, 3]
    assert batch.left_out_lengths.sum() == 4
    assert batch.left_out_tokens.sum() == 0


@pytest.mark.parametrize(
    ("changes", "in_loss", "counts"),
    [
        ({}, False, True),  # no gradient comes from it
        ({"objective.beta": 0.1}, True, False),  # its KL has one
        ({"objective.entropy_coef": 0.1}, True, False),
        ({"objective.beta": 0.1, "objective.zero_variance_groups": "mask"}, False, True),
        ({"objective.zero_variance_groups": "drop"}, False, False),
        ({"objective.beta": 0.1, "objective.zero_variance_groups": "drop"}, False, False),
    ],
)
def test_a_group_without_variance(tiny, changes, in_loss, counts):
    """It is in the loss, only in its denominators, or nowhere; the other group is there in any case."""
    config = configured(tiny, "all", **changes)
    groups = [group(0, [1, 1, 1, 1], lengths=np.array([4, 3, 2, 1])), group(1, [1, 0, 0, 1])]
    kept, _ = select_groups(config, groups, jax.random.key(0))
    batch = make_batch(config, kept, 1)
    first = batch.completions[..., 0] < 100  # by their first tokens
    assert bool((first & (batch.lengths > 0)).any()) == in_loss
    assert (batch.lengths[~first] > 0).sum() == 4
    expected = [1, 2, 3, 4] if counts else []
    assert sorted(batch.left_out_lengths[batch.left_out_lengths > 0]) == expected
    assert sorted(batch.left_out_tokens[batch.left_out_tokens > 0]) == expected
    assert len(kept[0].rows) == (4 if in_loss or counts else 0)  # of which the accounts are


def test_batches_of_idle_groups_have_the_usual_shapes(tiny):
    config = configured(tiny, "all")
    varied = select_groups(config, [group(i, [1, 0, 0, 1]) for i in range(4)], jax.random.key(0))[0]
    equal = select_groups(config, [group(i, [1, 1, 1, 1]) for i in range(4)], jax.random.key(0))[0]
    shapes = [jax.tree.map(np.shape, make_batch(config, kept, 1)) for kept in (varied, equal)]
    assert shapes[0].lengths == shapes[1].lengths
    assert shapes[0].left_out_lengths == shapes[1].left_out_lengths


def test_further_groups_change_nothing_for_the_first(tiny):
    """Groups are padded to a bucket; ties of rewards are where a difference would show."""
    alone, _ = selected(tiny, GROUPS[:1], "max_variance")
    among, _ = selected(tiny, [*GROUPS, *GROUPS, *GROUPS], "max_variance")
    np.testing.assert_array_equal(alone[0].rows, among[0].rows)
    np.testing.assert_array_equal(alone[0].advantages, among[0].advantages)


# ---------------------------------------------------------------- layout


def kept_of(sizes):
    groups = [group(i, np.zeros(n)) for i, n in enumerate(sizes)]
    return [Kept(g, np.arange(len(g.rewards)), np.float32(RNG.normal(size=len(g.rewards)))) for g in groups]


@given(st.lists(st.integers(0, 20), max_size=9), st.sampled_from([None, 1, 2, 4, 8, 16]), st.sampled_from([1, 2]))
def test_every_kept_rollout_is_once_in_a_block_beside_its_prompt(sizes, micro, devices):
    c = default_config()
    c.rollout.num_prompts, c.selection.num_kept, c.rollout.max_completion_length = 8, 4, 4
    c.optimizer.micro_batch_size_per_device = micro
    config, kept = from_mapping(c)[0], kept_of(sizes)
    batch = make_batch(config, kept, devices)
    there = batch.lengths > 0
    ids = batch.completions[..., 0]
    expected = [100 * uid + i for uid, n in enumerate(sizes) for i in range(n)]
    assert ids[there].tolist() == expected
    np.testing.assert_array_equal(batch.advantages[there], np.concatenate([k.advantages for k in kept] or [[]]))
    for block, present, length in zip(ids, there, batch.prompt_lengths, strict=True):
        assert all(uid % 3 + 1 == length for uid in block[present] // 100)
    assert (batch.prompt_lengths > 0).all()  # padding, too: attention needs a token to look at
    count, size = batch.lengths.shape
    assert count % devices == 0
    assert count * size % (devices * (micro or size)) == 0


def test_a_group_is_cut_in_the_order_of_lengths(tiny):
    lengths = np.array([4, 1, 3, 2, 4, 1])
    kept = [Kept(group(0, np.zeros(6), lengths), np.array([5, 0, 2, 3]), np.float32([0.5, 0, 0.2, 0.3]))]
    batch = make_batch(configured(tiny, "random", **{"optimizer.micro_batch_size_per_device": 2}), kept, 1)
    assert batch.lengths[:2].tolist() == [[1, 2], [3, 4]]
    assert batch.completions[:2, :, 0].tolist() == [[5, 3], [2, 0]]
    np.testing.assert_array_equal(batch.advantages[:2], np.float32([[0.5, 0.3], [0.2, 0]]))


def test_few_numbers_of_blocks_occur(tiny):
    config = from_mapping(tiny)[0]
    counts = [num_blocks(config, needed, 1) for needed in range(40)]
    assert counts[:5] == [4, 4, 4, 4, 4]  # num_prompts, however few the groups
    assert sorted(set(counts)) == [4, 6, 8, 12, 16, 24, 32, 48]
    assert all(count >= needed for needed, count in enumerate(counts))


def test_old_logprobs_are_the_samplers_if_asked(tiny):
    kept = kept_of([2, 3])
    assert make_batch(configured(tiny, "all"), kept, 1).old_logprobs is None
    batch = make_batch(configured(tiny, "all", **{"objective.old_logprobs": "behaviour"}), kept, 1)
    np.testing.assert_array_equal(batch.old_logprobs[1, :3], kept[1].group.logprobs)
