import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pods_jax import objective

group_advantages = jax.jit(objective.group_advantages, static_argnames=("scale_rewards", "ddof", "epsilon"))
REWARDS = np.float32([[1, 0, 0, 2], [100, 101, 103, 100], [0.35, 1.35, 0.35, 0.1], [-1, 1, -1, 1]])


def numpy_advantages(rewards, ddof=1, epsilon=1e-4):
    """Group by group, in float64."""
    groups = np.asarray(rewards, np.float64)
    return np.stack([(g - g.mean()) / (g.std(ddof=ddof) + epsilon) for g in groups])


@pytest.mark.parametrize(("ddof", "epsilon"), [(1, 1e-4), (1, 1e-6), (0, 1e-4), (0, 0.5)])
def test_advantages_equal_float64_numpy(ddof, epsilon):
    """Groups of very different means and spreads: statistics are taken within groups."""
    advantages = group_advantages(jnp.asarray(REWARDS), ddof=ddof, epsilon=epsilon)
    np.testing.assert_allclose(advantages, numpy_advantages(REWARDS, ddof, epsilon), rtol=2e-5)


def test_the_defaults_are_those_of_the_authors_code():
    np.testing.assert_allclose(group_advantages(jnp.array([[0.0, 1.0]])), [[-0.70700679, 0.70700679]], rtol=1e-6)


def test_none_only_subtracts_the_mean():
    expected = np.float64(REWARDS) - REWARDS.mean(1, keepdims=True)
    np.testing.assert_allclose(group_advantages(jnp.asarray(REWARDS), scale_rewards="none"), expected, rtol=1e-5)


@pytest.mark.parametrize("ddof", [0, 1])
def test_pooled_divides_by_the_spread_of_all_members_around_their_groups_means(ddof):
    centred = np.float64(REWARDS) - REWARDS.mean(1, keepdims=True)
    expected = centred / (np.sqrt((centred**2).sum() / (REWARDS.size - ddof)) + 1e-4)
    advantages = group_advantages(jnp.asarray(REWARDS), scale_rewards="pooled", ddof=ddof)
    np.testing.assert_allclose(advantages, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("ddof", [0, 1])
def test_batch_divides_by_the_deviation_of_all_rewards(ddof):
    """TRL's meaning: the deviation around one mean, which the groups' own means add to."""
    centred = np.float64(REWARDS) - REWARDS.mean(1, keepdims=True)
    expected = centred / (np.float64(REWARDS).std(ddof=ddof) + 1e-4)
    advantages = group_advantages(jnp.asarray(REWARDS), scale_rewards="batch", ddof=ddof)
    np.testing.assert_allclose(advantages, expected, rtol=2e-5, atol=1e-6)


def test_masked_rewards_have_no_part_in_the_batch():
    rewards = np.where(np.arange(4) < 3, np.float64(REWARDS), np.nan)
    centred = rewards - np.nanmean(rewards, 1, keepdims=True)
    expected = np.nan_to_num(centred / (np.nanstd(rewards, ddof=1) + 1e-4))
    advantages = group_advantages(jnp.asarray(rewards, jnp.float32), scale_rewards="batch")
    np.testing.assert_allclose(advantages, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-4, 0.0])
@pytest.mark.parametrize("scale_rewards", ["group", "batch", "pooled", "none"])
def test_equal_rewards_give_exactly_zero(scale_rewards, epsilon):
    """0.35 and 0.1 are no binary fractions: their mean in float32 need not equal them."""
    for value in (0.35, 0.1, 1e6 + 0.3, 0.0):
        rewards = jnp.full((3, 7), value, jnp.float32)
        assert (group_advantages(rewards, scale_rewards=scale_rewards, epsilon=epsilon) == 0).all()


def test_one_against_seven_stays_bounded():
    rewards = np.float32([[0.35] * 7 + [1.35]])
    np.testing.assert_allclose(group_advantages(jnp.asarray(rewards)), numpy_advantages(rewards), rtol=1e-5)


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "pooled", "none"])
def test_a_group_of_one_gets_zero(scale_rewards):
    assert not np.any(group_advantages(jnp.array([[0.7], [3.0]]), scale_rewards=scale_rewards))


def test_members_that_do_not_count_get_zero_and_leave_the_statistics():
    """Masked, NaN and infinite rewards alike; what is left is the group without them."""
    rewards = np.float32([[1, 5, np.nan, 0, 0, np.inf, -np.inf]])
    mask = np.array([[1, 0, 1, 1, 1, 1, 1]], bool)
    advantages = np.asarray(group_advantages(jnp.asarray(rewards), mask=jnp.asarray(mask)))
    np.testing.assert_allclose(advantages[:, [0, 3, 4]], numpy_advantages([[1, 0, 0]]), rtol=1e-5)
    assert not advantages[:, [1, 2, 5, 6]].any()


@pytest.mark.parametrize("mask", [[False, False, False], [False, True, False]])
def test_fewer_than_two_members_that_count_give_zero(mask):
    advantages = group_advantages(jnp.array([[1.0, 2.0, jnp.nan]]), mask=jnp.array([mask]))
    assert not np.any(advantages)


REWARD = st.one_of(st.sampled_from([0.0, 0.35, 1.0, 1.1]), st.integers(-999, 999).map(lambda i: np.float32(i / 100)))


@settings(deadline=None)
@given(arrays(np.float32, (2, 6), elements=REWARD), st.permutations(range(6)))
def test_advantages_follow_a_permutation_of_the_group(rewards, order):
    straight, permuted = group_advantages(jnp.asarray(rewards)), group_advantages(jnp.asarray(rewards[:, order]))
    np.testing.assert_allclose(np.asarray(straight)[:, order], permuted, rtol=1e-3, atol=1e-4)


@settings(deadline=None)
@given(arrays(np.float32, (2, 6), elements=REWARD))
def test_advantages_are_finite_bounded_and_sum_to_zero(rewards):
    """With ddof = 1 no advantage of a group of g exceeds (g - 1) / sqrt(g)."""
    advantages = np.asarray(group_advantages(jnp.asarray(rewards)))
    assert (np.abs(advantages) <= 5 / np.sqrt(6) + 1e-3).all()
    np.testing.assert_allclose(advantages.sum(1), 0, atol=1e-3)


def test_a_common_offset_changes_nothing():
    rewards = np.float32([[0.0625, 1, 0.5, 0.25, 0.125, 0.875, 0.1875]])
    shifted = rewards + np.float32(1e6)
    assert (shifted - np.float32(1e6) == rewards).all()  # exact
    np.testing.assert_allclose(group_advantages(jnp.asarray(shifted)), numpy_advantages(rewards), rtol=1e-3)


def test_a_bad_name_is_an_error():
    with pytest.raises(ValueError, match="scale_rewards must be one of group, pooled, batch, none, got 'std'"):
        group_advantages(jnp.asarray(REWARDS), scale_rewards="std")
