"""SAPO and GMPO against their formulas in plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.objective import policy_loss

RNG = np.random.default_rng(5)
LENGTHS = np.array([6, 3, 1, 4])
MASK = np.arange(6) < LENGTHS[:, None]
OLD = np.float32(RNG.normal(-2, 0.5, MASK.shape))
LOGPROBS = OLD + np.float32(RNG.normal(0, 0.6, MASK.shape))
ADVANTAGES = np.float32([1.3, -0.7, -2.0, 0.4])


def loss(logprobs, **options):
    arrays = (jnp.asarray(x) for x in (OLD, ADVANTAGES, MASK))
    return policy_loss(logprobs, *arrays, loss_type="grpo", **options)


@pytest.mark.parametrize(("epsilon", "epsilon_high"), [(0.4, None), (0.2, 0.5)])
def test_gmpo_is_the_geometric_mean_of_ratios_that_are_bounded_on_the_side_of_the_advantage(epsilon, epsilon_high):
    terms = []
    for row, length in enumerate(LENGTHS):
        sign = np.sign(ADVANTAGES[row])
        signed = sign * (np.float64(LOGPROBS) - OLD)[row, :length]
        bound = (epsilon if epsilon_high is None else epsilon_high) if sign > 0 else epsilon
        terms.append(np.exp(sign * np.minimum(signed, np.clip(signed, -bound, bound)).mean()) * ADVANTAGES[row])
    value, stats = loss(jnp.asarray(LOGPROBS), surrogate="gmpo", epsilon=epsilon, epsilon_high=epsilon_high)
    np.testing.assert_allclose(value, -np.mean(terms), rtol=1e-5)
    assert 0 < stats["clip_ratio/region_mean"] < 1


def test_gmpo_on_policy_has_the_policy_gradient():
    slope = jax.grad(lambda x: loss(x, surrogate="gmpo")[0])(jnp.asarray(OLD))
    expected = np.where(MASK, -ADVANTAGES[:, None] / LENGTHS[:, None] / len(LENGTHS), 0.0)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-8)


def test_sapo_is_grpo_on_policy_and_bounded_off_it():
    slopes = [jax.grad(lambda x, s=s: loss(x, surrogate=s)[0])(jnp.asarray(OLD)) for s in ("sapo", "clip")]
    np.testing.assert_allclose(*slopes, rtol=1e-5, atol=1e-8)
    far = jax.grad(lambda x: loss(x, surrogate="sapo")[0])(jnp.asarray(OLD + 4))
    assert np.abs(far).max() < 1e-3 * np.abs(slopes[0]).max()


def test_temperatures_are_those_of_the_advantages_sign():
    value, _ = loss(jnp.asarray(LOGPROBS), surrogate="sapo", sapo_temperature_pos=0.7, sapo_temperature_neg=2.0)
    ratio = np.exp(np.float64(LOGPROBS) - OLD)
    tau = np.where(ADVANTAGES > 0, 0.7, 2.0)[:, None]
    tokens = 4 / tau / (1 + np.exp(-tau * (ratio - 1))) * ADVANTAGES[:, None]
    expected = -np.mean([tokens[row, :length].mean() for row, length in enumerate(LENGTHS)])
    np.testing.assert_allclose(value, expected, rtol=1e-5)
