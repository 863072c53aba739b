"""Paired ratios against closed forms, and the cost model against costs that were made from one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from study.estimates import (
    CostModel,
    censored_ratio,
    cut,
    fit_costs,
    geometric_mean,
    mean_interval,
    num_censored,
    paired_ratio,
)

COSTS = st.lists(st.floats(0.1, 100), min_size=2, max_size=8)


def test_the_mean_and_its_interval_are_students():
    x = [3.0, 5.0, 4.0, 8.0]
    found = mean_interval(x)
    low, high = stats.t.interval(0.95, 3, np.mean(x), stats.sem(x))
    assert (found.value, found.low, found.high, found.num) == (5.0, pytest.approx(low), pytest.approx(high), 4)


def test_one_seed_has_no_interval_and_what_is_not_reached_does_not_count():
    assert mean_interval([2.0]).value == 2.0
    assert np.isnan(mean_interval([2.0]).low)
    assert geometric_mean([2.0, np.inf, 8.0]).value == pytest.approx(4.0)
    assert geometric_mean([2.0, np.inf, 8.0]).num == 2
    assert np.isnan(geometric_mean([np.inf]).value)


def test_pairs_in_which_one_side_does_not_get_there_are_left_out_and_counted():
    found = paired_ratio([2.0, np.inf, 8.0, 1.0, np.inf, 0.0], [1.0, 1.0, 2.0, np.inf, np.inf, 0.0])
    assert (found.value, found.num) == (pytest.approx(8**0.5), 2)
    assert np.isnan(paired_ratio([np.inf], [1.0]).value)


def test_a_side_that_never_gets_there_counts_with_its_budget_if_the_other_does():
    baseline = [2.0, np.inf, 8.0, np.inf]
    method = [1.0, 4.0, np.inf, np.inf]
    found = censored_ratio(baseline, method, baseline_budget=16.0, method_budget=32.0)
    assert (found.value, found.num) == (pytest.approx((2 / 1 * 16 / 4 * 8 / 32) ** (1 / 3)), 3)
    assert num_censored(baseline, method) == 2
    assert paired_ratio(baseline, method).value == pytest.approx(2.0)


def test_a_side_that_gets_there_after_the_mean_budget_keeps_its_own_cost():
    found = censored_ratio([np.inf], [50.0], baseline_budget=10.0, method_budget=20.0)
    assert found.value == pytest.approx(0.2)


def test_with_equal_budgets_what_one_side_reached_with_more_does_not_count():
    baseline = cut([5.0, 30.0, 30.0], 10.0)
    method = cut([20.0, 4.0, 40.0], 10.0)
    assert baseline == [5.0, np.inf, np.inf]
    found = censored_ratio(baseline, method, 10.0, 10.0)
    assert (found.value, found.num) == (pytest.approx((5 / 10 * 10 / 4) ** 0.5), 2)
    assert num_censored(baseline, method) == 2


@given(COSTS, st.floats(0.2, 5))
def test_a_common_factor_is_found_whatever_the_seeds(baseline, factor):
    found = paired_ratio(baseline, [c / factor for c in baseline])
    assert found.value == pytest.approx(factor)
    assert found.low == pytest.approx(factor)
    assert found.high == pytest.approx(factor)


@given(COSTS)
def test_exchanging_the_sides_inverts_the_ratio(costs):
    other = costs[::-1]
    there, back = paired_ratio(costs, other), paired_ratio(other, costs)
    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


def test_the_fit_finds_the_model_and_says_how_far_it_is_off():
    true = CostModel(0.01, 0.001, 0.004, 0.0)
    sizes = [(16, 16), (64, 64), (64, 16), (128, 16), (64, 4)]
    fit = fit_costs({s: true.step(*s) for s in sizes})
    assert (fit.a, fit.b, fit.c) == tuple(map(pytest.approx, (true.a, true.b, true.c)))
    assert fit.error < 1e-9
    assert fit_costs({s: true.step(*s) * (1.1 if s == (64, 4) else 1) for s in sizes}).error > 0.02
    with pytest.raises(ValueError, match="three sizes"):
        fit_costs({(1, 1): 1.0, (2, 1): 2.0})


def test_the_gain_goes_from_nothing_to_n_over_m():
    model = CostModel(0.0, 0.001, 0.004, 0.0)
    assert model.gain(64, 16) == pytest.approx((64 + 256) / (64 + 64))
    assert model.gain(64, 16, update_share=0.0) == pytest.approx(1.0)
    assert model.gain(64, 16, update_share=1e6) == pytest.approx(4.0, rel=1e-4)
