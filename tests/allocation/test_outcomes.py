import dataclasses
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import World

from pods_jax.allocation.outcomes import (
    Outcome,
    class_of_varying,
    class_within,
    counts_within,
    exact,
    outcome_of,
    success_rates,
    taking_part,
    values_of,
)
from pods_jax.groups import Prompt, Request

GROUP = World([0.5]).group(Request(Prompt(0, 0, "", "", "", ()), 8))


def group(correct, rewards=None):
    rewards = np.zeros(len(correct)) if rewards is None else rewards
    return dataclasses.replace(GROUP, correct=np.array(correct), rewards=np.array(rewards, float))


def counted(successes, n):
    """The outcome of n rollouts that are right or wrong."""
    return outcome_of(group([1.0] * successes + [0.0] * (n - successes)))


@pytest.mark.parametrize(
    ("p_lower", "p_upper", "exact_ones"),
    [
        (0.125, 0.75, (Fraction(1, 8), Fraction(3, 4))),
        (0.1, 0.9, (Fraction(1, 10), Fraction(9, 10))),  # neither is a binary number, nor is k / n
        (0.3, 0.7, (Fraction(3, 10), Fraction(7, 10))),
        (0.28, 0.56, (Fraction(7, 25), Fraction(14, 25))),
        (0.0, 1.0, (Fraction(0), Fraction(1))),
        (0.5, 0.5, (Fraction(1, 2), Fraction(1, 2))),
    ],
)
def test_thresholds_are_inclusive_on_both_ends(p_lower, p_upper, exact_ones):
    """Every count of every pilot size from 2 to 64, against exact fractions."""
    for n in range(2, 65):
        lowest, highest = counts_within(p_lower, p_upper, n)
        for successes in range(n + 1):
            rate = Fraction(successes, n)
            expected = "too_hard" if rate < exact_ones[0] else "too_easy" if rate > exact_ones[1] else "passed"
            outcome = Outcome(successes, n, 0.0, varies=True)
            assert class_within(outcome, p_lower, p_upper) == expected, (successes, n)
            assert (lowest <= successes <= highest) == (expected == "passed")
            assert outcome.reaches(exact(p_upper)) == (rate >= exact_ones[1])


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


ODD_VALUES = st.sampled_from([0.0, 1.0, np.nan, np.inf, -np.inf])
ODD_REWARDS = st.sampled_from([0.3, -2.0, 1.5, np.nan, -np.inf])


@given(st.lists(st.tuples(ODD_VALUES, ODD_REWARDS)))
def test_only_finite_rollouts_take_part(pairs):
    correct, rewards = [p[0] for p in pairs], [p[1] for p in pairs]
    finite = [(c, r) for c, r in pairs if np.isfinite(c) and np.isfinite(r)]
    right = [c for c, _ in finite]
    outcome = outcome_of(group(correct, rewards))
    assert (outcome.total, outcome.count) == (right.count(1.0), len(finite))
    assert outcome.varies == (0.0 in right and 1.0 in right)
    assert outcome.variance == pytest.approx(np.var(right) if right else 0)
    rewarded = outcome_of(group(correct, rewards), "reward")
    held = np.clip([r for _, r in finite], 0, 1)
    assert rewarded.total == pytest.approx(held.sum())
    assert rewarded.count == len(finite)
    assert rewarded.varies == (len({r for _, r in finite}) > 1)
    assert rewarded.variance == pytest.approx(held.var() if len(held) else 0)
    values = values_of(group(correct, rewards), "reward")
    assert np.isnan(values).tolist() == [not (np.isfinite(c) and np.isfinite(r)) for c, r in pairs]
    assert taking_part(group(correct, rewards), "reward").tolist() == [r for _, r in finite]


def test_without_a_finite_rollout_nothing_passes_and_no_rate_is_reached():
    """A comparison with NaN is false, so `not (p < lower or p > upper)` would let it pass."""
    for criterion in ("correctness", "reward"):
        outcome = outcome_of(group([1.0, 0.0], [np.nan, np.nan]), criterion)
        assert class_within(outcome, 0.0, 1.0) == class_of_varying(outcome) == "invalid"
        assert not outcome.reaches(Fraction(0))


def test_variation_is_exact_and_of_the_criterion():
    assert not outcome_of(group([True, True], rewards=[1.0, 0.2])).varies
    assert outcome_of(group([True, True], rewards=[1.0, 0.2]), "reward").varies
    assert outcome_of(group([True, False], rewards=[0.5, 0.5])).varies
    assert not outcome_of(group([True, False], rewards=[0.5, 0.5]), "reward").varies
    assert outcome_of(group([0.35, np.nextafter(0.35, 1)])).varies
    assert not outcome_of(group([0.35] * 7)).varies  # whose computed deviation is not 0
    assert not outcome_of(group([True])).varies
    assert not outcome_of(group([])).varies


def test_rewards_outside_of_0_to_1_vary_but_count_as_the_bounds():
    outcome = outcome_of(group([0, 0, 0, 0], rewards=[-1.0, -3.0, 2.0, 0.25]), "reward")
    assert outcome == (1.25, 4, np.var([0, 0, 1, 0.25]), True)


@pytest.mark.parametrize(
    ("correct", "kind"),
    [([0, 0], "too_hard"), ([1, 1], "too_easy"), ([0, 1], "passed"), ([0.4, 0.4], "too_hard"), ([], "invalid")],
)
def test_classes_of_groups_that_must_vary(correct, kind):
    assert class_of_varying(outcome_of(group(correct))) == kind


@pytest.mark.parametrize(
    ("reward", "kind"), [(0.0, "too_hard"), (0.49, "too_hard"), (0.5, "too_easy"), (1.0, "too_easy")]
)
def test_equal_rewards_are_hard_or_easy_by_the_side_of_one_half(reward, kind):
    assert class_of_varying(outcome_of(group([0] * 4, [reward] * 4), "reward")) == kind


def test_variance_of_counts():
    for n in range(1, 9):
        for successes in range(n + 1):
            assert counted(successes, n).variance == pytest.approx(np.var([1] * successes + [0] * (n - successes)))


def test_success_rates_leave_out_groups_in_which_none_takes_part():
    groups = [group([1, 0, 0, np.nan]), group([1, 1], [np.nan, np.nan]), group([1, 1])]
    groups = [
        dataclasses.replace(g, request=Request(Prompt(i, i, "", "", "", ()), len(g.rewards)))
        for i, g in enumerate(groups)
    ]
    prompts, rates = success_rates(groups, "correctness")
    assert [p.uid for p in prompts] == [0, 2]
    assert rates.tolist() == [1 / 3, 1.0]
    assert success_rates([], "reward")[1].shape == (0,)
