import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pods_jax.selection.ordering import descending

NUMBERS = st.floats(width=32, allow_nan=False, allow_subnormal=False)  # XLA takes subnormal ones for 0
FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf]), NUMBERS)
order = jax.jit(descending)


@given(arrays(np.float32, 9, elements=FLOATS), arrays(bool, 9), st.integers(0, 99))
def test_scores_fall_and_invalid_entries_come_last(scores, valid, seed):
    indices = np.asarray(order(jnp.asarray(scores), jax.random.key(seed), jnp.asarray(valid)))
    assert sorted(indices) == list(range(9))
    num_valid = valid.sum()
    assert valid[indices[:num_valid]].all()
    np.testing.assert_array_equal(scores[indices[:num_valid]], np.sort(scores[valid])[::-1])


@pytest.mark.parametrize("n", [1, 2, 3, 257])
def test_groups_of_any_size(n):
    scores = np.random.default_rng(n).permutation(n).astype(np.float32)
    indices = np.asarray(descending(jnp.asarray(scores), jax.random.key(0), jnp.ones(n, bool)))
    np.testing.assert_array_equal(scores[indices], np.arange(n)[::-1])


def test_every_order_of_ties_is_equally_likely():
    """Two-sided: zeros of either sign tie. 3! orders of the tied three, 6,000 draws, five sigma."""
    scores, valid = jnp.float32([0.0, 1.0, -0.0, 0.0]), jnp.ones(4, bool)
    drawn = jax.vmap(lambda key: descending(scores, key, valid))(jax.random.split(jax.random.key(0), 6000))
    orders, counts = np.unique(np.asarray(drawn), axis=0, return_counts=True)
    assert (orders[:, 0] == 1).all()
    assert len(orders) == 6
    np.testing.assert_allclose(counts, 1000, atol=5 * np.sqrt(6000 * 5 / 36))


@pytest.mark.parametrize("num_groups", [1, 3, 129, 300])
def test_groups_in_one_call_are_ordered_as_one_by_one(num_groups):
    """A call for many groups runs a sorting network on a CPU, one for a single group XLA's sort."""
    rng = np.random.default_rng(num_groups)
    scores = jnp.asarray(rng.choice([0.0, 1.0, 1.0 + 2**-20, -3.0, np.inf], (num_groups, 11)), jnp.float32)
    valid = jnp.asarray(rng.random((num_groups, 11)) < 0.8)
    keys = jax.random.split(jax.random.key(0), num_groups)
    together = jax.jit(jax.vmap(descending))(scores, keys, valid)
    np.testing.assert_array_equal(together, [order(*group) for group in zip(scores, keys, valid, strict=True)])
