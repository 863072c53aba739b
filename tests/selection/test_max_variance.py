import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_groups import REWARD, binary_groups, families, kept, kept_rewards


def assert_maximal(rewards, indices):
    """No subset of m has a larger variance, in float64, beyond 2e-6 of the squared range."""
    for group, chosen in zip(np.asarray(rewards, np.float64), indices, strict=True):
        assert len(set(chosen)) == len(chosen)
        centred = group - group.min()
        best = max(np.var(subset) for subset in itertools.combinations(centred, len(chosen)))
        assert np.var(centred[chosen]) >= best - 2e-6 * np.ptp(group) ** 2


SIZES = [(8, m) for m in range(1, 9)] + [pytest.param(12, m, marks=pytest.mark.slow) for m in range(1, 13)]


@pytest.mark.parametrize(("largest", "m"), SIZES)
def test_max_variance_is_maximal_over_all_subsets(largest, m):
    """For every n in m..largest: groups of `largest` of which n are valid, the rest extreme."""
    rewards = np.full((largest + 1 - m, 16, largest), 1e9, np.float32)
    valid = np.zeros(rewards.shape, bool)
    for i, n in enumerate(range(m, largest + 1)):
        places = np.random.default_rng(n).permutation(largest)[:n]
        rewards[i][:, places], valid[i][:, places] = families(n), True
    rewards, valid = rewards.reshape(-1, largest), valid.reshape(-1, largest)
    indices = kept("max_variance", rewards, m, valid)
    assert np.take_along_axis(valid, indices, axis=1).all()
    for group, ok, chosen in zip(rewards, valid, indices, strict=True):
        assert_maximal(group[ok][None], (np.cumsum(ok) - 1)[chosen][None])


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


@pytest.mark.parametrize("m", [15, 16, 64])
def test_max_variance_of_binary_rewards_follows_the_closed_form(m):
    """Odd m ties exactly between floor(m/2) and ceil(m/2) correct ones: the smaller wins."""
    counts = range(65)
    rewards = kept_rewards("max_variance", binary_groups(counts, 64), m)
    assert rewards.sum(1).tolist() == [correct_kept(c, 64, m) for c in counts]


@pytest.mark.slow
@pytest.mark.parametrize("m", range(1, 65))
def test_max_variance_follows_the_closed_form_for_every_group_of_up_to_64(m):
    """Every n in m..64 and c in 0..n: groups of 64 of which n are valid, c of them correct."""
    cases = [(n, c) for n in range(m, 65) for c in range(n + 1)]
    n, c = np.array(cases).T[..., None]
    rewards = kept_rewards("max_variance", np.arange(64) < c, m, valid=np.arange(64) < n)
    assert rewards.sum(1).tolist() == [correct_kept(c, n, m) for n, c in cases]


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


# ---------------------------------------------------------------- the authors' order of ties


def authors_loop(rewards, m):
    """Their single-device code: all from the top first, then k = 0, 1, ...; strictly greater unbiased variance."""
    order = sorted(range(len(rewards)), key=lambda i: -rewards[i])
    best, variance = order[:m], np.var(rewards[order[:m]], ddof=1)
    for k in range(m):
        candidate = order[:k] + order[len(order) - (m - k) :]
        if np.var(rewards[candidate], ddof=1) > variance:
            best, variance = candidate, np.var(rewards[candidate], ddof=1)
    return best


@pytest.mark.parametrize("m", [4, 5])
def test_the_authors_order_of_ties_is_theirs(m):
    """On rewards whose variances are exact in float64, so that their strict comparison sees ties as ties."""
    rng = np.random.default_rng(m)
    groups = np.concatenate([rng.choice([0, 1], (40, 8)), rng.choice([0, 1, 2], (40, 8)), np.ones((1, 8))])
    expected = [sorted(authors_loop(np.float64(group) * 20, m)) for group in groups]
    assert np.sort(kept("max_variance_authors", groups, m)).tolist() == expected


def test_the_authors_rule_of_one_keeps_the_first_of_the_highest():
    assert kept("max_variance_authors", [[1.0, 3.0, 3.0, 2.0]], 1).item() == 1
