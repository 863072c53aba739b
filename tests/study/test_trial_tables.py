"""Tables and figures of a language model's trials, from records of known curves, against arithmetic."""

import dataclasses
import json

import numpy as np
import pytest
from study import document, trial_plots
from study.extents import Extent, Setting
from study.smollm2 import COMPARED, METHODS, WAVES
from study.trial_tables import curves, reported, trial_table
from study.trials import Record, Trial

from pods_jax.io import finite

SETTING = Setting("sum-P1", "configs/demo.py:grpo", {}, thresholds=(0.25, 0.5))
EXTENT = Extent(
    [SETTING, Setting("other", "configs/demo.py:grpo", {})], METHODS, WAVES, seeds=range(3), first_rate=1e-5
)
STEPS = np.arange(0, 101, 10)


def record(method, seed, slope, per_step):
    """Accuracy rises by `slope` a step; a step generates `per_step` rollouts of 10 tokens."""
    accuracy = np.minimum(slope * STEPS, 1.0)
    columns = {"step": 1, "rounds": 1, "rollouts/generated": per_step, "rollouts/trained": 4}
    columns |= {"tokens/generated": 10 * per_step, "tokens/trained": 40}
    curve = {"accuracy": accuracy.tolist()} | {key: (STEPS * each).tolist() for key, each in columns.items()}
    return Record(Trial("sum-P1", method, 1e-5, seed), (), curve, 0.5)


def recorded(slopes):
    """Records of methods by (slope of each seed, rollouts a step), and of the seed that chose their rates."""
    made = [
        record(method, seed, slope, per_step)
        for method, (by_seed, per_step) in slopes.items()
        for seed, slope in [(100, 0.01), *enumerate(by_seed)]
    ]
    return {r.trial: r for r in made}


@pytest.fixture(scope="module")
def table():
    slopes = {"grpo": ([0.01, 0.01, 0.004], 4), "pods": ([0.02, 0.02, 0.02], 16), "pilot_commit": ([0.01], 20)}
    costs = {m: {"step": s, "step_interval": [s - 0.04, s + 0.04]} for m, s in {"grpo": 0.5, "pods": 0.8}.items()}
    return trial_table(EXTENT, recorded(slopes), {"sum-P1": costs})["sum-P1"]


def test_costs_are_those_of_the_first_evaluation_at_which_two_in_a_row_average_the_threshold(table):
    """At slope 0.01 the mean of 50 and 60 steps is 0.55, of 40 and 50 it is 0.45."""
    to = table["rows"]["grpo"]["to"]
    assert to["0.5"]["steps"]["by_seed"] == [60, 60, None]
    assert to["0.5"]["rollouts"]["by_seed"] == [240, 240, None]
    assert to["0.25"]["tokens"]["by_seed"] == [1200, 1200, 2800]
    assert to["0.5"]["rollouts"]["num"] == 2
    assert table["rows"]["pods"]["to"]["0.5"]["steps"]["by_seed"] == [30, 30, 30]


def test_ratios_are_paired_and_cut_at_the_smaller_budget(table):
    ratio = table["ratios"]["grpo"]["pods"]
    assert ratio["0.5"]["steps"]["value"] == pytest.approx((2 * 2 * 100 / 30) ** (1 / 3))  # the third counts at 100
    assert (ratio["0.5"]["steps"]["num"], ratio["0.5"]["steps"]["censored"]) == (3, 1)
    beyond = ratio["0.5"]["rollouts"]  # 240 of GRPO's 400 against 480 of PODS, which is beyond 400
    assert beyond["value"] == pytest.approx((240 / 400) ** (2 / 2))
    assert (beyond["num"], beyond["censored"]) == (2, 2)


def test_seconds_are_steps_times_their_cost_where_that_was_measured(table):
    rows = table["rows"]
    assert rows["grpo"]["to"]["0.5"]["seconds"]["by_seed"] == [30.0, 30.0, None]
    assert rows["pods"]["to"]["0.5"]["seconds"]["by_seed"] == [24.0] * 3
    assert rows["pods"]["budget"]["seconds"] == pytest.approx(80)
    assert (rows["pods"]["step_seconds"], *rows["pods"]["step_interval"]) == pytest.approx((0.8, 0.76, 0.84))
    assert "seconds" not in rows["pilot_commit"]["to"]["0.5"]
    ratio = table["ratios"]["grpo"]["pods"]["0.5"]["seconds"]
    assert ratio["value"] == pytest.approx((30 / 24 * 30 / 24 * 50 / 24) ** (1 / 3))
    assert "seconds" not in table["ratios"]["grpo"]["pilot_commit"]["0.5"]


def test_a_method_with_fewer_seeds_is_compared_on_those(table):
    found = table["ratios"]["grpo"]["pilot_commit"]["0.25"]["steps"]
    assert (found["num"], found["pairs"], found["value"]) == (1, 1, pytest.approx(1.0))
    assert np.isnan(found["low"])
    assert table["rows"]["pilot_commit"]["seeds"] == [0]


def test_methods_and_settings_without_a_reported_run_are_left_out():
    records = recorded({"grpo": ([0.01], 4), "pods": ([], 16)})
    tables = trial_table(EXTENT, records, {})
    assert list(tables) == ["sum-P1"]
    assert list(tables["sum-P1"]["rows"]) == ["grpo"]
    assert tables["sum-P1"]["tuning"]["pods"] == {"1e-05": pytest.approx(0.55)}
    assert reported(EXTENT, "sum-P1", "random", records) == {}
    assert trial_table(EXTENT, {}, {}) == {}


def test_the_block_is_the_same_from_a_file_and_counts_its_intervals(table):
    tables = {"sum-P1": table}
    block = document.trials_block(tables)
    assert document.trials_block(json.loads(json.dumps(finite(tables)))) == block
    assert "| GRPO | 4 -> 4 | 1e-05 | 3 | 0.50 [0.46, 0.54] |" in block
    assert "2 of 3 seeds" in block
    assert "at the budget" in block
    assert "7 reported run(s)" in block
    assert document.trials_block({}) == "No reported run is finished yet."


@pytest.mark.parametrize("costs", [{}, {"sum-P1": {m: {"step": 0.5} for m in METHODS if m != "pilot_commit"}}])
def test_curves_and_figures(tmp_path, costs):
    records = recorded({method: ([0.01, 0.012, 0.008], 16) for method in METHODS if method != "random"})
    found = curves(reported(EXTENT, "sum-P1", "pods", records), "rollouts/generated")
    assert found.x.tolist() == (STEPS * 16).tolist()
    assert found.y[0].tolist() == pytest.approx([0, *(0.01 * (s - 5) for s in STEPS[1:])])
    (drawn,) = trial_plots.draw_trials(EXTENT, records, costs, COMPARED, tmp_path)
    assert drawn.name == "smollm2_sum-P1.png"
    assert drawn.stat().st_size > 20_000


def test_runs_that_end_early_have_scores_and_curves():
    found = {seed: record("pilot_commit", seed, 0.01, 20) for seed in (0, 1)}
    assert found[0].score == pytest.approx(0.55)
    cut = {key: values[:3] for key, values in found[1].curve.items()}
    found[1] = dataclasses.replace(found[1], curve=cut)
    assert curves(found, "step").x.tolist() == [0, 10, 20]
    unmoved = dataclasses.replace(found[1], curve={"accuracy": [0.25]})
    assert unmoved.score == 0.25
