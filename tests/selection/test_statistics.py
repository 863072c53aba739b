import jax.numpy as jnp
import numpy as np
import pytest
from small_groups import binary_groups, kept

from pods_jax.selection import selection_statistics

REWARDS = np.float32([[0, 1, 3, np.nan], [0.35, 0.35, 0.35, 2], [np.nan, np.nan, 5, np.nan]])
INDICES = np.array([[0, 2], [0, 1], [2, 0]])


def test_statistics_of_chosen_indices():
    stats = selection_statistics(jnp.asarray(REWARDS), jnp.asarray(INDICES))
    np.testing.assert_allclose(stats.group_variance, [np.nanvar(row) for row in np.float64(REWARDS)], rtol=1e-6)
    np.testing.assert_allclose(stats.kept_variance, [2.25, 0, 0])
    assert stats.num_high.tolist() == [1, 0, 0]
    assert stats.degenerate.tolist() == [False, True, True]


def test_rollouts_can_be_declared_invalid():
    rewards = jnp.array([[1.0, 0.0, 5.0, 1.0]])
    stats = selection_statistics(rewards, jnp.asarray([[0, 1, 2]]), jnp.asarray([[True, False, False, True]]))
    assert stats.degenerate.tolist() == [True]
    assert stats.group_variance.tolist() == stats.kept_variance.tolist() == [0.0]


@pytest.mark.parametrize("m", [15, 16])
def test_num_high_is_the_k_of_max_variance(m):
    """Binary groups that vary after selection: k is the number of correct ones."""
    groups = binary_groups(range(1, 64), 64)
    indices = kept("max_variance", groups, m)
    stats = selection_statistics(jnp.asarray(groups), jnp.asarray(indices))
    np.testing.assert_array_equal(stats.num_high, np.take_along_axis(groups, indices, 1).sum(1))
