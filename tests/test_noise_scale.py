"""The noise scale's estimator: against float64 on gradients of a quadratic whose noise is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.noise_scale import Moments, estimate, fieller

D = 12
CURVATURE = np.linspace(0.5, 2.0, D)
INTER, INTRA = np.linspace(0.1, 0.9, D), np.linspace(1.2, 0.2, D)


def quadratic_gradients(rng, prompts, groups, distance=1.0):
    """Gradients [a, K, D] of (x - x* - u_i - e_ik)' A (x - x* - u_i - e_ik) / 2 at a distance from the optimum x*."""
    shifts = rng.normal(0, np.sqrt(INTER), (prompts, 1, D)) + rng.normal(0, np.sqrt(INTRA), (prompts, groups, D))
    return CURVATURE * (np.full(D, distance) - shifts)


def truth(distance=1.0):
    return [(CURVATURE**2 * x).sum() for x in (np.full(D, distance) ** 2, INTER, INTRA)]


def moments_of(gradients):
    means = gradients.mean(1)
    return Moments((gradients**2).sum(-1), (means**2).sum(-1), means @ means.mean(0))


def components(found):
    return np.array([found.signal, found.inter, found.intra])


def by_definition(g):
    """The estimator from the gradients themselves, as a textbook has it."""
    a, K, _ = g.shape
    within = sum(np.sum((g[i, k] - g[i].mean(0)) ** 2) for i in range(a) for k in range(K)) / (a * (K - 1))
    between = K * sum(np.sum((g[i].mean(0) - g.mean((0, 1))) ** 2) for i in range(a)) / (a - 1)
    return np.array([np.sum(g.mean((0, 1)) ** 2) - between / (a * K), (between - within) / K, within])


@pytest.mark.parametrize(("prompts", "groups"), [(3, 2), (7, 3), (20, 2)])
def test_it_is_the_analysis_of_variance_of_the_gradients(prompts, groups):
    g = quadratic_gradients(np.random.default_rng(0), prompts, groups)
    found = estimate(moments_of(g))
    np.testing.assert_allclose(components(found), by_definition(g), rtol=1e-10)
    signal, inter, intra = by_definition(g)
    np.testing.assert_allclose(found.in_prompts, [(inter + intra) / signal, inter / signal, intra / signal])


def test_the_covariance_is_the_jackknife_over_prompts():
    g = quadratic_gradients(np.random.default_rng(1), 9, 2)
    without = np.array([by_definition(np.delete(g, i, 0)) for i in range(9)])
    centred = without - without.mean(0)
    np.testing.assert_allclose(estimate(moments_of(g)).covariance, 8 / 9 * centred.T @ centred, rtol=1e-8)


def test_signal_and_noise_of_a_quadratic_are_unbiased_and_their_interval_covers():
    rng = np.random.default_rng(2)
    found = [estimate(moments_of(quadratic_gradients(rng, 24, 2, 0.5))) for _ in range(600)]
    values = np.array([components(f) for f in found])
    errors = (values.mean(0) - truth(0.5)) / (values.std(0, ddof=1) / np.sqrt(len(values)))
    assert np.abs(errors).max() < 3
    jackknife = np.mean([np.diag(f.covariance) for f in found], 0)
    np.testing.assert_allclose(jackknife, values.var(0, ddof=1), rtol=0.2)
    signal, inter, intra = truth(0.5)
    intervals = np.array([f.interval() for f in found])
    covered = (intervals[:, 0] <= (inter + intra) / signal) & ((inter + intra) / signal <= intervals[:, 1])
    assert 0.9 < covered.mean() < 0.99


def test_without_a_signal_the_interval_has_no_end():
    found = estimate(moments_of(quadratic_gradients(np.random.default_rng(3), 8, 2, 0.0)))
    low, high = found.interval()
    assert 0 < low < high == np.inf
    assert found.in_prompts == (np.inf, np.inf, np.inf) or found.signal > 0


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_a_scaled_gradient_has_the_same_noise_scale(seed, scale):
    g = quadratic_gradients(np.random.default_rng(seed), 5, 2)
    plain, scaled = (estimate(moments_of(x)) for x in (g, scale * g))
    np.testing.assert_allclose(components(scaled), scale**2 * components(plain), rtol=1e-6, atol=1e-9 * scale**2)
    np.testing.assert_allclose(scaled.interval(), plain.interval(), rtol=1e-6)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.01, 2), st.floats(0.01, 2), st.floats(-0.9, 0.9))
def test_the_ends_of_a_ratio_are_t_deviations_away(y, x, sd_y, sd_x, correlation):
    cov = correlation * sd_y * sd_x
    low, high = fieller(y, x, sd_y**2, cov, sd_x**2, t=2.0)
    assert 0 <= low <= high
    for r in (low, high):
        if 0 < r < np.inf:
            assert (y - r * x) ** 2 == pytest.approx(4 * (sd_y**2 - 2 * r * cov + (r * sd_x) ** 2), rel=1e-4)
    assert high < np.inf or x < 2 * sd_x * (1 + 1e-6)


def test_few_prompts_have_an_estimate_without_an_interval_and_fewer_have_none():
    g = quadratic_gradients(np.random.default_rng(4), 2, 2)
    found = estimate(moments_of(g))
    np.testing.assert_allclose(components(found), by_definition(g))
    assert np.isnan(found.interval()).all()
    for bad in (g[:1], g[:, :1]):
        with pytest.raises(ValueError, match="two prompts with two groups"):
            estimate(moments_of(bad))
