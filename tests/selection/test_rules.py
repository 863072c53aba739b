import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_groups import KEY, REWARD, binary_groups, families, kept, kept_rewards

from pods_jax.errors import UserError
from pods_jax.selection import RULES, select

# ---------------------------------------------------------------- the other rules


def test_max_reward_keeps_the_highest():
    rewards = np.random.default_rng(0).normal(size=(5, 8))
    np.testing.assert_array_equal(np.sort(kept_rewards("max_reward", rewards, 4)), np.sort(rewards)[:, 4:])


def test_all_keeps_the_order_of_generation():
    assert kept("all", [[3.0, 1.0, 2.0, 5.0]], 4).tolist() == [[0, 1, 2, 3]]
    assert kept("all", [[3.0, np.nan, 2.0, 5.0]], 3).tolist() == [[0, 2, 3]]


def test_min_reward_keeps_the_lowest():
    rewards = np.random.default_rng(0).normal(size=(5, 8))
    np.testing.assert_array_equal(np.sort(kept_rewards("min_reward", rewards, 4)), np.sort(rewards)[:, :4])


def best(scores, m):
    """Indices of the m highest of every row, in float64."""
    return np.sort(np.argsort(-np.float64(scores), axis=1)[:, :m])


def test_max_abs_advantage_keeps_the_farthest_from_the_mean_of_the_valid():
    rewards = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    valid = np.arange(8) != 3
    mean = np.float64(rewards)[:, valid].mean(1, keepdims=True)
    expected = best(np.where(valid, np.abs(rewards - mean), -1), 4)
    got = kept("max_abs_advantage", rewards, 4, np.broadcast_to(valid, rewards.shape))
    np.testing.assert_array_equal(np.sort(got), expected)


@pytest.mark.parametrize("rule", ["shortest", "reward_per_token", "entropy"])
def test_rules_of_another_score_keep_the_best(rule):
    rng = np.random.default_rng(1)
    rewards, entropies = rng.normal(size=(2, 5, 8)).astype(np.float32)
    lengths = np.stack([rng.permutation(16)[:8] for _ in range(5)])
    scores = {"shortest": -lengths, "reward_per_token": rewards / np.maximum(lengths, 1), "entropy": entropies}[rule]
    got = kept(rule, rewards, 3, lengths=lengths, entropies=entropies)
    np.testing.assert_array_equal(np.sort(got), best(scores, 3))


@pytest.mark.parametrize("m", [15, 16])
def test_balanced_keeps_half_of_each_as_far_as_both_reach(m):
    groups = binary_groups(range(65), 64)
    expected = [min(max(m // 2, m - (64 - c)), min(m, c)) for c in range(65)]
    assert (kept_rewards("balanced", groups * 0.4 + 0.5, m) > 0.7).sum(1).tolist() == expected
    np.testing.assert_array_equal(
        kept_rewards("balanced", groups, m).sum(1), kept_rewards("max_variance", groups, m).sum(1)
    )


@pytest.mark.parametrize(("low", "high"), [(0.7, 0.71), (0.0, 0.71), (0.7, 1.0)])
def test_balanced_takes_rewards_above_seven_tenths_for_right(low, high):
    """Where all were on one side of the threshold, four of eight would be drawn at random."""
    groups = np.tile(np.float32([low, high] * 4), (50, 1))
    assert ((kept_rewards("balanced", groups, 4) == np.float32(high)).sum(1) == 2).all()


@pytest.mark.parametrize("reward", [0.7, 0.71])
def test_balanced_draws_at_random_where_all_are_right_or_all_are_wrong(reward):
    groups = np.tile(np.float32([reward, 0.9 if reward > 0.7 else 0.1] * 4), (50, 1))
    assert len(set((kept_rewards("balanced", groups, 4) == np.float32(reward)).sum(1).tolist())) > 2


@pytest.mark.parametrize(
    ("rule", "weights"),
    [
        ("pf_ppo_pow", [4, 1, 0, 1, 4, 0, 1, 9]),
        ("pf_ppo_max_min", [0, 0, 0, 1, 0, 0, 1, 1]),
        ("pf_ppo_max_random", [1, 1, 1, 1, 1, 0, 1, 4]),
    ],
)
def test_pf_ppo_draws_in_proportion_to_its_weights(rule, weights):
    rewards = jnp.float32([2, 1, 0, -1, 2, jnp.nan, -1, 3])
    indices = draws(rule, rewards, 4, jax.random.split(KEY, 4000))
    expected = np.array(weights) / np.sum(weights)
    np.testing.assert_allclose(
        np.bincount(np.ravel(indices), minlength=8) / 16_000, expected, atol=5 * 0.5 / np.sqrt(16_000)
    )


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("invalid", [0, jnp.nan, jnp.inf])
def test_pf_ppo_squares_rewards_of_any_size(scale, invalid):
    """Their squares are beyond float32."""
    rewards = jnp.float32([0, scale, 2 * scale, 0]).at[3].set(invalid)
    indices = draws("pf_ppo_pow", rewards, 2, jax.random.split(KEY, 4000))
    np.testing.assert_allclose(np.bincount(np.ravel(indices), minlength=4) / 8000, [0, 0.2, 0.8, 0], atol=0.03)


def test_pf_ppo_draws_equally_where_all_rewards_are_zero():
    indices = draws("pf_ppo_pow", jnp.zeros(8).at[5].set(jnp.nan), 4, jax.random.split(KEY, 4000))
    expected = np.array([1, 1, 1, 1, 1, 0, 1, 1]) / 7
    np.testing.assert_allclose(np.bincount(np.ravel(indices), minlength=8) / 16_000, expected, atol=0.02)


@pytest.mark.parametrize(("n", "m"), [(8, 8), (8, 4), (8, 3), (7, 2), (64, 16), (64, 13), (64, 41)])
def test_percentile_keeps_the_quantiles_at_bin_centres(n, m):
    rewards = np.random.default_rng(n).normal(size=(4, n)).astype(np.float32)
    levels = (np.arange(m) + 0.5) / m
    expected = np.quantile(rewards, levels, axis=1, method="inverted_cdf").T
    np.testing.assert_array_equal(np.sort(kept_rewards("percentile", rewards, m)), expected)


# ---------------------------------------------------------------- ties and randomness


@functools.partial(jax.jit, static_argnames=("rule", "num_kept"))
def draws(rule, rewards, num_kept, keys):
    return jax.vmap(lambda key: select(rule, rewards[None], num_kept, key))(keys)


@pytest.mark.parametrize(
    ("rule", "rewards", "expected"),
    [
        ("max_variance", [1, 0, 1, 0, 0, 1, 0, 1], [0.5] * 8),
        ("max_variance", [1, 0, 0, 0, 0, 0, 0, 0], [1] + [3 / 7] * 7),
        ("max_variance", [0.35] * 8, [0.5] * 8),
        ("max_reward", [2, 1, 1, 0, 2, 1, 1, 1], [1, 0.4, 0.4, 0, 1, 0.4, 0.4, 0.4]),
        ("percentile", [0.35] * 8, [0.5] * 8),
        ("balanced", [0.8, 0, 1, 0, 0, 0.9, 0, 1], [0.5] * 8),
        ("random", [0, 1, 2, 3, 4, 5, 6, 7], [0.5] * 8),
    ],
)
def test_tied_rollouts_are_kept_equally_often(rule, rewards, expected):
    indices = draws(rule, jnp.asarray(rewards, jnp.float32), 4, jax.random.split(KEY, 4000))
    five_sigma = 5 * 0.5 / np.sqrt(4000)
    np.testing.assert_allclose(np.bincount(np.ravel(indices)) / 4000, expected, atol=five_sigma)


def test_groups_break_their_ties_apart_and_by_the_key():
    rewards = np.zeros((16, 8))
    indices = kept("random", rewards, 4)
    assert len({tuple(row) for row in indices}) > 1
    np.testing.assert_array_equal(indices, kept("random", rewards, 4))
    assert not np.array_equal(indices, kept("random", rewards, 4, key=jax.random.key(1)))


def test_a_group_does_not_depend_on_the_other_groups():
    rewards = families(8)
    np.testing.assert_array_equal(kept("max_variance", rewards, 4)[:2], kept("max_variance", rewards[:2], 4))


# ---------------------------------------------------------------- every rule


LENGTHS = np.array([[3, 0, 5, 5, 1, 9, 9, 2]] * 2)
ENTROPIES = np.float32([[0.5, 0, 1, 1, 2, 0.1, 0.1, 3]] * 2)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(RULES)),
    arrays(np.float32, (2, 8), elements=st.one_of(REWARD, st.sampled_from([np.nan, np.inf, -np.inf]))),
    arrays(bool, (2, 8)),
    st.sampled_from([3, 8]),
)
def test_every_rule_keeps_m_different_rollouts_and_valid_ones_first(rule, rewards, valid, m):
    """But for the resampling rules, which may repeat a valid one."""
    indices = kept(rule, rewards, m, valid, lengths=LENGTHS, entropies=ENTROPIES)
    usable = valid & np.isfinite(rewards)
    assert indices.shape == (2, m)
    for chosen, good in zip(indices, usable, strict=True):
        assert set(chosen) <= set(range(8))
        if rule.startswith("pf_ppo"):
            assert good[chosen].all() or not good.any()
        else:
            assert len(set(chosen)) == m
            assert good[chosen].sum() == min(m, good.sum())


def test_errors():
    with pytest.raises(UserError, match="unknown selection rule 'max_varianse': did you mean 'max_variance'"):
        select("max_varianse", jnp.zeros((1, 4)), 2, KEY)
    for m in (0, 5):
        with pytest.raises(UserError, match=r"num_kept must be an integer in 1\.\.4"):
            select("random", jnp.zeros((1, 4)), m, KEY)


def test_a_rule_gets_the_arrays_it_names_and_no_other():
    assert kept("max_reward", [[1.0, 2.0]], 1, lengths=np.array([[1, 2]])).item() == 1
    with pytest.raises(UserError, match="selection rule 'shortest' needs lengths: pass them to select as arrays"):
        select("shortest", jnp.zeros((1, 4)), 2, KEY, entropies=jnp.zeros((1, 4)))


@pytest.mark.parametrize(
    ("mistaken", "returned"),
    [(lambda rewards: jnp.argsort(rewards), r"int32\[4\]"), (lambda rewards: rewards[:2], r"float32\[2\]")],
)
def test_a_rule_that_does_not_return_m_indices_is_named(monkeypatch, mistaken, returned):
    monkeypatch.setitem(RULES._parts, "mistaken", lambda rewards, num_kept, key, valid: mistaken(rewards))
    with pytest.raises(UserError, match=f"'mistaken' returned {returned} for a group, expected 2 indices"):
        select("mistaken", jnp.zeros((1, 4)), 2, KEY)
