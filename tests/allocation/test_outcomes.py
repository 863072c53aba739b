import dataclasses
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import World

from pods_jax.allocation.outcomes import Tally, classify, counts_within, tally, varies
from pods_jax.groups import Prompt, Request

GROUP = World([0.5]).group(Request(Prompt(0, 0, "", "", "", ()), 8))


def group(correct, rewards=None):
    rewards = np.zeros(len(correct)) if rewards is None else rewards
    return dataclasses.replace(GROUP, correct=np.array(correct), rewards=np.array(rewards, float))


@pytest.mark.parametrize(
    ("p_lower", "p_upper", "exact"),
    [
        (0.125, 0.75, (Fraction(1, 8), Fraction(3, 4))),
        (0.1, 0.9, (Fraction(1, 10), Fraction(9, 10))),  # neither is a binary number, nor is k / n
        (0.3, 0.7, (Fraction(3, 10), Fraction(7, 10))),
        (0.28, 0.56, (Fraction(7, 25), Fraction(14, 25))),
        (0.0, 1.0, (Fraction(0), Fraction(1))),
        (0.5, 0.5, (Fraction(1, 2), Fraction(1, 2))),
    ],
)
def test_thresholds_are_inclusive_on_both_ends(p_lower, p_upper, exact):
    """Every count of every pilot size from 2 to 64, against exact fractions."""
    for n in range(2, 65):
        band = counts_within(p_lower, p_upper, n)
        for successes in range(n + 1):
            rate = Fraction(successes, n)
            expected = "too_hard" if rate < exact[0] else "too_easy" if rate > exact[1] else "passed"
            assert classify(Tally(successes, n), band) == expected, (successes, n)


def test_bands_of_the_published_thresholds():
    assert [counts_within(1 / 8, 3 / 4, n) for n in (8, 16, 32)] == [(1, 6), (2, 12), (4, 24)]


def test_the_chance_to_pass_matches_the_binomial_table():
    """Thresholds 1/8 and 3/4; rows are pilot sizes, columns true success rates."""
    rates = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
    table = {
        8: (0.15, 0.34, 0.57, 0.83, 0.94, 0.96, 0.74, 0.50, 0.19, 0.06),
        16: (0.04, 0.19, 0.49, 0.86, 0.97, 0.99, 0.75, 0.40, 0.07, 0.01),
        32: (0.00, 0.07, 0.40, 0.91, 0.99, 1.00, 0.79, 0.30, 0.01, 0.00),
    }
    for n, row in table.items():
        low, high = counts_within(0.125, 0.75, n)
        chances = [sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(low, high + 1)) for p in rates]
        np.testing.assert_allclose(chances, row, atol=0.0051)


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, np.nan, np.inf]), st.sampled_from([0.3, -2.0, np.nan, -np.inf]))))
def test_only_finite_rollouts_take_part(pairs):
    correct, rewards = [p[0] for p in pairs], [p[1] for p in pairs]
    finite = [c for c, r in pairs if np.isfinite(c) and np.isfinite(r)]
    assert tally(group(correct, rewards)) == (finite.count(1.0), len(finite))
    assert varies(group(correct, rewards)) == (0.0 in finite and 1.0 in finite)


def test_without_a_finite_rollout_nothing_passes():
    """A comparison with NaN is false, so `not (p < lower or p > upper)` would let it pass."""
    outcome = tally(group([1.0, 0.0], [np.nan, np.nan]))
    assert classify(outcome, counts_within(0.125, 0.75, outcome.taking_part)) == "invalid"


def test_variation_is_exact_and_of_raw_correctness():
    assert not varies(group([True, True], rewards=[1.0, 0.2]))
    assert varies(group([True, False], rewards=[0.5, 0.5]))
    assert varies(group([0.35, np.nextafter(0.35, 1)]))
    assert not varies(group([0.35] * 7))  # whose computed deviation is not 0
    assert not varies(group([True]))
    assert not varies(group([]))


def test_variance_of_a_tally():
    assert Tally(2, 8).variance == np.var([1, 1, 0, 0, 0, 0, 0, 0])
    assert Tally(0, 0).variance == 0
