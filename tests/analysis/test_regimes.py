"""The model of what a method gains, against groups that are drawn, selected and measured one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.analysis.regimes import (
    GRID,
    factors,
    grpo,
    pilot_commit,
    pods,
    step_ratio,
    success_rates,
    transferred,
)
from pods_jax.noise_scale import Moments, estimate

RATES, SHARES = np.array([0.03, 0.2, 0.6, 0.97]), np.array([0.4, 0.3, 0.2, 0.1])
DIM, SCORE = 6, 1.5


def drawn_counts(rng, p, n, m, rule):
    """The right ones among m kept of n, by listing what each subset's variance is."""
    k = rng.binomial(n, p)
    if rule == "all":
        return k
    feasible = range(max(0, m - (n - k)), min(m, k) + 1)
    return max(feasible, key=lambda r: (r * (m - r), -r))


def group_gradient(rng, contrast, k, m, scale):
    """The gradient of a group with k right ones: scores are the contrast's halves plus noise, advantages GRPO's."""
    right = np.arange(m) < k
    scores = np.where(right[:, None], contrast / 2, -contrast / 2) + rng.normal(0, SCORE / np.sqrt(DIM), (m, DIM))
    advantages = right - right.mean()
    if scale == "group" and 0 < k < m:
        advantages = advantages / right.std()
    return advantages @ scores / m


def simulated(seed, n, m, rule, scale, passes=None, prompts=3000):
    """Signal, inter and intra of a method, by drawing groups; passes: (n_pilot, low, high)."""
    rng = np.random.default_rng(seed)
    common = np.eye(DIM)[0]
    gradients = []
    while len(gradients) < prompts:
        p = rng.choice(RATES, p=SHARES)
        own = rng.normal(0, 1, DIM)
        own[0] = 0
        contrast = np.sqrt(0.5) * (common + own / np.linalg.norm(own))
        pilots = [rng.binomial(passes[0], p) if passes else 0 for _ in range(2)]
        if passes and not all(passes[1] <= k / passes[0] <= passes[2] for k in pilots[:1]):
            continue
        if passes:  # a second group of the same prompt is one that passed, too
            while not passes[1] <= pilots[1] / passes[0] <= passes[2]:
                pilots[1] = rng.binomial(passes[0], p)
            counts = [k + rng.binomial(n - passes[0], p) for k in pilots]
        else:
            counts = [drawn_counts(rng, p, n, m, rule) for _ in range(2)]
        gradients.append([group_gradient(rng, contrast, k, m, scale) for k in counts])
    g = np.array(gradients)
    means = g.mean(1)
    found = estimate(Moments((g**2).sum(-1), (means**2).sum(-1), means @ means.mean(0)))
    return np.array([[found.signal, found.inter, found.intra]])


CASES = {
    "pods": (pods(16, 4), (16, 4, "max_variance")),
    "ga": (grpo(16), (16, 16, "all")),
    "pilot_commit": (pilot_commit(4, 12, 0.25, 0.75), (16, 16, "all")),
}


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("name", CASES)
def test_components_of_another_method_follow_from_those_of_grpo(name, scale):
    method, (n, m, rule) = CASES[name]
    own, other = (factors(x, RATES, SHARES, scale) for x in (grpo(4), method))
    measured = simulated(0, 4, 4, "all", scale)
    direct = simulated(1, n, m, rule, scale, passes=(4, 0.25, 0.75) if name == "pilot_commit" else None)
    predicted = transferred(measured, own, other)
    np.testing.assert_allclose(predicted / predicted[0, 0], direct / direct[0, 0], rtol=0.15)
    ratio = step_ratio(measured, predicted, 2)
    assert ratio == pytest.approx(step_ratio(measured, direct, 2), rel=0.1)


def test_a_group_keeps_the_subset_of_largest_variance():
    p = np.array([0.0, 0.1, 0.5, 1.0])
    for n, m in ((6, 3), (16, 4), (4, 4)):
        rng = np.random.default_rng(2)
        expected = [
            np.bincount([drawn_counts(rng, q, n, m, "max_variance") for _ in range(4000)], minlength=m + 1) / 4000
            for q in p
        ]
        np.testing.assert_allclose(pods(n, m).counts(p), expected, atol=0.03)


def test_pilots_pass_by_their_own_rate_and_cost_what_fails_costs():
    p, weights = np.array([0.0, 0.5, 1.0]), np.array([0.5, 0.25, 0.25])
    method = pilot_commit(4, 12, 0.25, 0.75)
    passing = 14 / 16  # of four at p = 0.5, all but none and all right
    np.testing.assert_allclose(method.counts(p).sum(1), [0, passing, 0])
    assert method.generated(p, weights) == pytest.approx(12 + 4 / (0.25 * passing))
    assert factors(method, p, np.array([1.0, 0, 0])).generated == np.inf


@given(st.integers(2, 12), st.integers(0, 30), st.floats(0, 1))
def test_counts_are_probabilities_of_what_is_kept(m, more, p):
    for method in (grpo(m), pods(m + more, m)):
        counts = method.counts(np.array([p]))
        assert counts.shape == (1, m + 1)
        assert counts.sum() == pytest.approx(1)
    wide = factors(pods(m + more, m), GRID, np.ones(61) / 61)
    assert wide.mean >= factors(grpo(m), GRID, np.ones(61) / 61).mean - 1e-9  # nearer to one half right


def test_the_measured_method_predicts_itself_and_no_signal_has_a_finite_ratio():
    own = factors(grpo(4), RATES, SHARES)
    components = np.array([[1.0, 3.0, 9.0]])
    np.testing.assert_allclose(transferred(components, own, own), components)
    lost = np.array([[-0.1, 3.0, 9.0]])
    other = factors(pods(16, 4), RATES, SHARES)
    [ratio] = step_ratio(transferred(lost, own, own), transferred(lost, own, other), 4)
    assert 1 < ratio < 20
    nothing = -np.ones((1, 3))  # as a draw from imprecise estimates may be
    [ratio] = step_ratio(transferred(nothing, own, own), transferred(nothing, own, other), 4)
    assert 0 < ratio < 20


def test_success_rates_are_those_of_the_prompts_not_of_their_few_rollouts():
    rng = np.random.default_rng(3)
    truth = np.where(rng.random(400) < 0.5, 0.05, 0.6)
    weights = success_rates(rng.binomial(8, truth), 8)
    assert weights.sum() == pytest.approx(1)
    assert weights @ GRID == pytest.approx(truth.mean(), abs=0.03)
    assert weights[GRID <= 0.12].sum() == pytest.approx(0.5, abs=0.1)
    assert weights[GRID >= 0.9].sum() < 0.05
