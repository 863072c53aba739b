"""Importance weights against plain numpy, for every mode and bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.objective import CORRECTIONS
from pods_jax.objective.corrections import importance_weights

RNG = np.random.default_rng(3)
MASK = np.arange(5) < np.array([5, 2, 4, 1])[:, None]
OLD = np.float32(RNG.normal(-2, 0.6, (4, 5)))
BEHAVIOUR = np.float32(RNG.normal(-2, 0.6, (4, 5)))


def weights(mode, **bounds):
    return np.asarray(importance_weights(mode, jnp.asarray(OLD), jnp.asarray(BEHAVIOUR), jnp.asarray(MASK), **bounds))


@pytest.mark.parametrize("floor", [None, 0.8])
@pytest.mark.parametrize("cap", [None, 1.2])
@pytest.mark.parametrize("mode", sorted(CORRECTIONS))
def test_weights_are_the_ratios_within_the_bounds(mode, cap, floor):
    log_ratios = np.where(MASK, np.float64(OLD) - BEHAVIOUR, 0.0)
    if mode.startswith("sequence"):
        log_ratios = np.broadcast_to(log_ratios.sum(1, keepdims=True), MASK.shape)
    ratios = np.exp(log_ratios)
    low, high = (0.0 if floor is None else floor), (np.inf if cap is None else cap)
    inside = (ratios >= low) & (ratios <= high)
    expected = np.clip(ratios, low, high) if mode.endswith("truncate") else np.where(inside, ratios, 0.0)
    np.testing.assert_allclose(weights(mode, floor=floor, cap=cap), expected, rtol=1e-5)


@pytest.mark.parametrize("mode", sorted(CORRECTIONS))
def test_weights_have_no_gradient(mode):
    def total(old):
        return importance_weights(mode, old, jnp.asarray(BEHAVIOUR), jnp.asarray(MASK), floor=None, cap=2.0).sum()

    assert not np.any(jax.grad(total)(jnp.asarray(OLD)))
