"""Curves against the statistics module and plain loops, speed-ups whose answer is known, and costs to a target."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run

from pods_jax.analysis.curves import (
    Curves,
    common_grid,
    cost_at_crossing,
    cost_to_target,
    curves_of,
    first_crossing,
    first_reach,
    nearest_values,
    phase_seconds,
    rollouts_to_target,
    running_mean,
    speed_up,
    time_to_target,
)
from pods_jax.analysis.runs import read_run

RISING = np.array([0.1, 0.3, 0.5, 0.7, 0.8, 0.8])
TIMES = np.array([0.0, 2.0, 4.0, 6.0, 8.0, 10.0])


def seeds(curve, noise=0.0, count=5):
    rng = np.random.default_rng(0)
    return np.array([curve + noise * rng.normal(size=len(curve)) for _ in range(count)])


def test_bands_are_student_s_intervals_over_seeds():
    curves = Curves(TIMES, seeds(RISING, 0.1))
    for place in range(len(TIMES)):
        column = curves.y[:, place].tolist()
        assert curves.mean[place] == pytest.approx(statistics.fmean(column))
        assert curves.half_width[place] == pytest.approx(2.776445 * statistics.stdev(column) / math.sqrt(5))
    assert np.isnan(Curves(TIMES, RISING[None]).half_width).all()


def test_running_means_know_nothing_of_later_values_and_are_shorter_at_the_start():
    assert running_mean([0.0, 3.0, 6.0, 9.0], window=3).tolist() == [0.0, 1.5, 3.0, 6.0]
    assert running_mean([], window=3).tolist() == []
    assert Curves(TIMES, RISING[None]).smoothed(1).y.tolist() == [RISING.tolist()]


def test_nearest_evaluations():
    values = nearest_values(np.array([1.4, 2.5, 9.0]), np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.9, 2.1, 30.0]))
    assert values.tolist() == [1.0, 1.0, 2.0, 3.0]


def test_a_common_grid_is_what_all_runs_cover():
    shared = common_grid([np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.0, 3.0])])
    assert shared.tolist() == [0.0, 1.0, 2.0]
    other = common_grid([np.array([0.0, 1.1, 2.2]), np.array([0.5, 1.0, 2.0])])
    assert (other[0], other[-1], len(other)) == (0.5, 2.0, 3)
    assert len(common_grid([np.array([0.0, 1.1]), np.array([0.5, 1.0])], num=7)) == 7


def test_curves_of_runs_against_each_axis(tmp_path):
    runs = [read_run(make_run(tmp_path / str(s), n=8, m=4, rule="random", seed=s, rate=1.0)) for s in (0, 1)]
    by_step = curves_of(runs, axis="step")
    assert by_step.x.tolist() == list(range(0, 41, 4))
    assert by_step.y[1].tolist() == [e["accuracy"] for e in runs[1].evals]
    assert curves_of(runs, axis="rollouts/generated").x[-1] == 40 * 16 * 8
    halfway = curves_of(runs, axis="step", grid=np.array([2.0, 50.0]))
    assert halfway.y[0, 0] == pytest.approx((runs[0].evals[0]["accuracy"] + runs[0].evals[1]["accuracy"]) / 2)
    assert np.isnan(halfway.y[:, 1]).all()


def test_seconds_a_step_by_phase(tmp_path):
    seconds = phase_seconds(read_run(make_run(tmp_path / "a", n=8, m=4, rule="random", seed=0, rate=1.0)))
    assert seconds == pytest.approx(
        {"sample": 0.008, "verify": 0.004, "select": 0.001, "update": 0.016, "step": 0.034, "other": 0.005}
    )


# ---------------------------------------------------------------- thresholds and speed-ups


def test_the_first_evaluation_at_or_above_a_threshold():
    curves = Curves(TIMES, np.array([[0.0, 0.6, 0.4, 0.6, 0.6, 0.6], [0.0, 0.6, 0.2, 0.6, 0.6, 0.6]]))
    assert first_reach(curves, 0.6) == 2.0
    assert first_reach(curves, 0.0) == 0.0
    assert first_reach(curves, 0.61) == math.inf


def test_a_method_twice_as_fast():
    baseline, method = Curves(TIMES, seeds(RISING)), Curves(TIMES / 2, seeds(RISING))
    result = speed_up(baseline, method)
    assert (result.baseline, result.method, result.threshold) == (8.0, 4.0, pytest.approx(0.792))
    assert (result.low, result.ratio, result.high) == (2.0, 2.0, 2.0)


def test_the_threshold_is_the_mean_curves_not_the_mean_of_the_runs_thresholds():
    spread = Curves(np.array([0.0, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]]))  # each peaks at 1, the mean at 0.5
    assert speed_up(spread, spread).threshold == pytest.approx(0.495)


def test_never_reached():
    low, high = Curves(TIMES, seeds(0.5 * RISING)), Curves(TIMES, seeds(RISING))
    assert speed_up(high, low).ratio == speed_up(high, low).high == 0.0
    fixed = speed_up(low, high, threshold=0.75)
    assert (fixed.baseline, fixed.method, fixed.ratio) == (math.inf, 8.0, math.inf)
    neither = speed_up(low, high, threshold=2.0)
    assert math.isnan(neither.ratio)
    assert math.isnan(neither.low)


def test_single_runs_and_ratios_that_are_not_finite_have_no_interval():
    one, two = Curves(TIMES, RISING[None]), Curves(TIMES, seeds(RISING, count=2))
    for pair in ((one, one), (one, two), (two, one)):
        assert speed_up(*pair).ratio == 1.0
        assert math.isnan(speed_up(*pair).low)
        assert math.isnan(speed_up(*pair).high)
    at_once = speed_up(two, Curves(TIMES, np.ones((2, 6))))
    assert (at_once.method, at_once.ratio) == (0.0, math.inf)
    assert math.isnan(at_once.high)


def test_the_interval_covers_a_ratio_that_is_known():
    """Noisy curves, twice as fast: of 95 % intervals nearly all hold 2, and their width is not nothing."""
    times, rng, hits, widths = np.linspace(0, 10, 101), np.random.default_rng(0), 0, []
    for _ in range(40):
        # A fixed threshold in the middle of the curve, where a seed's shift in time is symmetric.
        slow, fast = (0.05 * np.clip(rate * (times - rng.normal(0, 0.5, (8, 1))), 0, None) for rate in (1.0, 2.0))
        result = speed_up(Curves(times, slow), Curves(times, fast), threshold=0.2, resamples=400)
        truth = first_reach(Curves(times, 0.05 * times[None]), 0.2) / first_reach(Curves(times, 0.1 * times[None]), 0.2)
        hits += result.low <= truth <= result.high
        widths.append(result.high - result.low)
    assert hits >= 32
    assert min(widths) > 0.05


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.integers(0, 99))
def test_an_interval_holds_attainable_ratios_only(curve, seed):
    times = 1.0 + np.arange(len(curve))
    rng = np.random.default_rng(seed)
    baseline, method = (Curves(times, np.array(curve) + rng.random((3, len(curve)))) for _ in range(2))
    result = speed_up(baseline, method, resamples=50)
    attainable = {0.0} | {a / b for a in times for b in times}
    assert {result.low, result.ratio, result.high} <= attainable
    assert result.low <= result.high


# ---------------------------------------------------------------- costs to a target


def curve(*accuracies):
    return [
        {"accuracy": a, "rollouts/generated": 100.0 * i, "tokens/generated": 700.0 * i, "wall_time_s": 1.5 * i}
        for i, a in enumerate(accuracies)
    ]


WAVERING = curve(0.1, 0.25, 0.5, 0.4, 0.75)


def test_the_first_evaluation_at_or_above_the_target_counts():
    assert rollouts_to_target(WAVERING, 0.5) == 200  # though it falls again
    assert time_to_target(WAVERING, 0.5) == 3.0
    assert rollouts_to_target(WAVERING, 0.51) == 400
    assert rollouts_to_target(WAVERING, 0.1) == 0


def test_a_target_never_reached_is_censored():
    assert rollouts_to_target(WAVERING, 0.8) is None
    assert time_to_target([], 0.0) is None


def test_a_running_mean_does_not_jump_at_a_spike():
    spiky = curve(0.1, 0.1, 0.9, 0.1, 0.2, 0.5, 0.5, 0.5)
    assert rollouts_to_target(spiky, 0.5) == 200
    assert rollouts_to_target(spiky, 0.5, window=3) == 700
    assert rollouts_to_target(curve(0.5), 0.5, window=3) == 0


def test_smoothed_curves_reach_a_threshold_where_costs_to_a_target_do():
    accuracies = [0.1, 0.4, 0.6, 0.55, 0.7, 0.2, 0.9]
    evals = curve(*accuracies)
    smoothed = Curves(np.array([e["rollouts/generated"] for e in evals]), np.array([accuracies])).smoothed(3)
    for target in (0.1, 0.3, 0.5, 0.6):
        assert first_reach(smoothed, target) == rollouts_to_target(evals, target, window=3)


def test_paired_resamples_take_out_what_seeds_share():
    """Each seed has its own speed; the method is twice as fast with each, so every resample of pairs has ratio 2."""
    x = np.arange(1.0, 201.0)
    slow = np.array([np.clip(x / (80 + 20 * s), 0, 1) for s in range(5)])
    fast = np.array([np.clip(2 * x / (80 + 20 * s), 0, 1) for s in range(5)])
    pairs = speed_up(Curves(x, slow), Curves(x, fast), threshold=0.9, paired=True)
    independent = speed_up(Curves(x, slow), Curves(x, fast), threshold=0.9)
    assert pairs.ratio == independent.ratio == pytest.approx(2, rel=0.02)
    assert pairs.high - pairs.low < 0.1 < independent.high - independent.low


def test_another_metric():
    assert rollouts_to_target([e | {"greedy_accuracy": 1.0} for e in WAVERING], 0.9, metric="greedy_accuracy") == 0
    with pytest.raises(KeyError):
        rollouts_to_target(WAVERING, 0.9, metric="greedy_accuracy")


@given(st.lists(st.floats(0, 1), max_size=9), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_target_never_comes_cheaper(accuracies, a, b):
    low, high = (rollouts_to_target(curve(*accuracies), t) for t in sorted((a, b)))
    assert high is None or (low is not None and low <= high)


@given(
    st.lists(st.floats(0.5, 20), min_size=3, max_size=30),
    st.floats(0.05, 0.4),
)
def test_where_a_straight_curve_crosses_does_not_depend_on_when_it_was_evaluated(gaps, target):
    steps = [0.0, *np.cumsum(gaps)]
    slope = 0.5 / steps[-2]  # so that the last two evaluations are beyond every target
    evals = [{"accuracy": slope * step, "cost": 3 * step} for step in steps]
    assert cost_at_crossing(evals, target, "cost") == pytest.approx(3 * target / slope)
    assert cost_to_target(evals, target, "cost") >= 3 * target / slope * (1 - 1e-9)


def test_a_crossing_is_between_means_of_neighbours():
    evals = [{"accuracy": a, "cost": c} for a, c in [(0.1, 0), (0.3, 10), (0.9, 20), (0.1, 30)]]
    assert cost_at_crossing(evals, 0.4, "cost") == pytest.approx(10)  # 0.2 at 5, 0.6 at 15
    assert cost_at_crossing(evals, 0.1, "cost") == 0
    assert cost_at_crossing(evals, 0.65, "cost") is None  # a spike is none
    assert cost_at_crossing([], 0.0, "cost") is None
    assert cost_at_crossing(evals[:1], 0.1, "cost") == 0


def test_a_crossing_lies_on_the_line_between_two_points():
    x, y = np.array([0.0, 4.0, 8.0, 12.0]), np.array([0.1, 0.3, 0.7, 0.5])
    assert first_crossing(x, y, 0.4) == pytest.approx(5.0)
    assert first_crossing(x, y, 0.3) == 4.0
    assert first_crossing(x, y, 0.05) == 0.0
    assert first_crossing(x, y, 0.71) == math.inf
