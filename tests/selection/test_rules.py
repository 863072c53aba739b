import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pods_jax.errors import UserError
from pods_jax.selection import RULES, select

KEY = jax.random.key(0)


@functools.partial(jax.jit, static_argnames=("rule", "num_kept"))
def _select(rule, rewards, num_kept, key, valid):
    return select(rule, rewards, num_kept, key, valid=valid)


def kept(rule, rewards, num_kept, valid=None, key=KEY):
    """Indices [P, m]; compiled once for a rule and a shape."""
    rewards = np.asarray(rewards, np.float32)
    return np.asarray(_select(rule, rewards, num_kept, key, np.ones(rewards.shape, bool) if valid is None else valid))


def kept_rewards(rule, rewards, num_kept):
    return np.take_along_axis(np.asarray(rewards), kept(rule, rewards, num_kept), axis=1)


# ---------------------------------------------------------------- max variance against every subset


def assert_maximal(rewards, indices):
    """No subset of m has a larger variance, in float64, beyond 2e-6 of the squared range."""
    for group, chosen in zip(np.asarray(rewards, np.float64), indices, strict=True):
        assert len(set(chosen)) == len(chosen)
        centred = group - group.min()
        best = max(np.var(subset) for subset in itertools.combinations(centred, len(chosen)))
        assert np.var(centred[chosen]) >= best - 2e-6 * np.ptp(group) ** 2


def families(n):
    """Groups [16, n]: continuous, tied, binary and constant; with large offsets and extreme scales."""
    rng = np.random.default_rng(n)
    graded, binary = rng.choice([0, 0.25, 0.5, 1, 1.25, 2, 3], n), rng.integers(0, 2, n)
    maps = [(1, 0), (1, 1e6), (1e-6, 0), (1e6, -3)]  # scale, offset
    return np.float32([x * a + b for x in (rng.normal(size=n), graded, binary, np.full(n, 0.35)) for a, b in maps])


@pytest.mark.parametrize("m", range(1, 9))
def test_max_variance_is_maximal_over_all_subsets(m):
    """For every n in m..8: groups of 8 of which n are valid, the rest extreme."""
    rewards = np.full((9 - m, 16, 8), 1e9, np.float32)
    valid = np.zeros(rewards.shape, bool)
    for i, n in enumerate(range(m, 9)):
        places = np.random.default_rng(n).permutation(8)[:n]
        rewards[i][:, places], valid[i][:, places] = families(n), True
    rewards, valid = rewards.reshape(-1, 8), valid.reshape(-1, 8)
    indices = kept("max_variance", rewards, m, valid)
    assert np.take_along_axis(valid, indices, axis=1).all()
    for group, ok, chosen in zip(rewards, valid, indices, strict=True):
        assert_maximal(group[ok][None], (np.cumsum(ok) - 1)[chosen][None])


REWARD = st.one_of(
    st.sampled_from([0.0, 0.25, 0.35, 1.0, 1.1, 3.0]), st.integers(-3000, 3000).map(lambda i: np.float32(i / 1000))
)


@settings(deadline=None)
@given(
    arrays(np.float32, (2, 8), elements=REWARD),
    st.sampled_from([3, 4]),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.sampled_from([0.0, 1e6]),
)
def test_max_variance_of_any_rewards_is_maximal(rewards, m, scale, offset):
    rewards = (rewards * scale + offset).astype(np.float32)
    assert_maximal(rewards, kept("max_variance", rewards, m))


def correct_kept(c, n, m):
    """The closed form for c correct of n: half of m (rounded down), as far as both classes reach."""
    return np.clip(m // 2, max(0, m - (n - c)), min(m, c))


def binary_groups(counts, n):
    """Groups with the given numbers of correct rollouts, each in an order of its own."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(np.arange(n) < c) for c in counts]).astype(np.float32)


@pytest.mark.parametrize("m", [15, 16, 64])
def test_max_variance_of_binary_rewards_follows_the_closed_form(m):
    """Odd m ties exactly between floor(m/2) and ceil(m/2) correct ones: the smaller wins."""
    counts = range(65)
    rewards = kept_rewards("max_variance", binary_groups(counts, 64), m)
    assert rewards.sum(1).tolist() == [correct_kept(c, 64, m) for c in counts]


def test_max_variance_of_one_keeps_a_lowest_reward():
    assert kept_rewards("max_variance", [[3.0, 1.0, 2.0]], 1).item() == 1.0


def released_loop(rewards, m):
    """The PODS repository's multi-GPU loop: its best-so-far is a view of the sort order, and overwrites it."""
    order = np.argsort(-rewards, kind="stable")
    best, variance = order[:m], np.var(rewards[order[:m]])
    for k in range(m):
        candidate = np.concatenate([order[:k], order[len(order) - (m - k) :]])
        if np.var(rewards[candidate]) > variance:
            variance = np.var(rewards[candidate])
            best[:] = candidate
    return best


def test_max_variance_does_not_have_the_aliasing_defect_of_the_released_loop():
    counts = [2, 14, 35, 58, 101, 116, 127]
    groups = binary_groups(counts, 128)
    assert [group[released_loop(group, 32)].sum() for group in groups] == [2, 14, 1, 1, 5, 20, 31]
    assert kept_rewards("max_variance", groups, 32).sum(1).tolist() == [2, 14, 16, 16, 16, 20, 31]


@settings(deadline=None)
@given(arrays(np.int8, (2, 8), elements=st.integers(-8, 8)), st.integers(-99, 99), st.sampled_from([2**-20, 3, 2**9]))
def test_max_variance_ignores_shift_and_positive_scale(rewards, shift, scale):
    """Exactly representable rewards, so that ties stay ties."""
    np.testing.assert_array_equal(
        kept("max_variance", rewards, 4), kept("max_variance", (rewards + float(shift)) * scale, 4)
    )


# ---------------------------------------------------------------- the other rules


def test_max_reward_keeps_the_highest():
    rewards = np.random.default_rng(0).normal(size=(5, 8))
    np.testing.assert_array_equal(np.sort(kept_rewards("max_reward", rewards, 4)), np.sort(rewards)[:, 4:])


def test_all_keeps_the_order_of_generation():
    assert kept("all", [[3.0, 1.0, 2.0, 5.0]], 4).tolist() == [[0, 1, 2, 3]]
    assert kept("all", [[3.0, np.nan, 2.0, 5.0]], 3).tolist() == [[0, 2, 3]]


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


@settings(deadline=None)
@given(
    st.sampled_from(sorted(RULES)),
    arrays(np.float32, (2, 8), elements=st.one_of(REWARD, st.sampled_from([np.nan, np.inf, -np.inf]))),
    arrays(bool, (2, 8)),
    st.sampled_from([3, 8]),
)
def test_every_rule_keeps_m_different_rollouts_and_valid_ones_first(rule, rewards, valid, m):
    indices = kept(rule, rewards, m, valid)
    usable = valid & np.isfinite(rewards)
    assert indices.shape == (2, m)
    for chosen, good in zip(indices, usable, strict=True):
        assert len(set(chosen)) == m
        assert set(chosen) <= set(range(8))
        assert good[chosen].sum() == min(m, good.sum())


def test_errors():
    with pytest.raises(UserError, match="unknown selection rule 'max_varianse': did you mean 'max_variance'"):
        select("max_varianse", jnp.zeros((1, 4)), 2, KEY)
    for m in (0, 5):
        with pytest.raises(ValueError, match=r"num_kept must lie in 1\.\.4"):
            select("random", jnp.zeros((1, 4)), m, KEY)
