"""The map of regimes: its definition, and tables and figure from records of known curves and noise."""

import dataclasses
import json

import numpy as np
import pytest
from study import document, plots
from study.regime import FULL, METHODS, QUICK, cost_name, costs_of
from study.regime_tables import noise_before, regime_table
from study.trials import Record, Trial, overrides_of

from pods_jax.analysis.regimes import GRID, factors, grpo, pods, step_ratio, success_rates, transferred
from pods_jax.config.load import load_config
from pods_jax.config.validate import validate_on_devices
from pods_jax.io import finite

STEPS = np.arange(0, 201, 20)
SIGNAL, INTER, INTRA = 1.0, 4.0, 12.0
SUCCESSES = [0, 0, 1, 0, 2, 5]


@pytest.mark.parametrize("regime", [FULL, QUICK], ids=["full", "quick"])
def test_every_config_is_valid_and_all_runs_of_a_task_have_the_same_time(regime):
    for task in regime.tasks:
        seconds = {name: 0.01 * (1 + i) for i, (name, _) in enumerate(costs_of(task))}
        extent = regime.extent(task, range(40, 60), seconds)
        assert not set(extent.seeds) & set(extent.tuning_seeds)
        assert len(extent.seeds) == regime.num_seeds
        for setting in extent.settings:
            for method in task.methods:
                config = load_config(setting.spec, overrides_of(extent, Trial(setting.name, method, 5e-4, 7)))
                validate_on_devices(config, 1)
                assert (config.warm_start.seed, config.optimizer.lr_scheduler_type) == (7, "constant")
                assert config.training.num_steps % config.training.eval_every_steps == 0
                if regime is FULL:
                    spent = config.training.num_steps * seconds[cost_name(setting.name, method)]
                    assert spent == pytest.approx(task.seconds, rel=0.02)


def test_the_sizes_are_those_that_are_announced():
    addition, chatter, _ = FULL.tasks
    assert [t.prompts for t in FULL.tasks] == [(1, 4, 16), (1, 4, 16), (2, 4, 16)]
    sizes = {m: (x.keys["rollout.num_generations"], x.keys["selection.num_kept"]) for m, x in METHODS.items()}
    assert sizes == {"grpo": (4, 4), "pods": (16, 4), "grpo_ga": (16, 16), "random": (16, 4)}
    assert (FULL.lowest_rate, FULL.first_rate, FULL.highest_rate) == (3.125e-5, 1.25e-4, 1e-3)
    assert addition.accepted == chatter.accepted == (0.05, 0.15)


# ---------------------------------------------------------------- tables


def measurement(step, signal=SIGNAL):
    return {
        "step": step, "signal": signal, "inter": INTER, "intra": INTRA, "covariance": (1e-6 * np.eye(3)).tolist(),
        "count": 6, "n": 4, "m": 4, "successes": SUCCESSES, "rollouts": 8,
    }  # fmt: skip


def record(method, seed, slope, n):
    curve = {"accuracy": np.minimum(slope * STEPS, 1.0).tolist(), "step": STEPS.tolist()}
    curve |= {"rollouts/generated": (STEPS * n * 4.0).tolist()}
    noise = [measurement(1), measurement(131, signal=1e6)]
    return Record(Trial("addition-P4", method, 5e-4, seed), (), curve, 0.1, noise)


@pytest.fixture(scope="module")
def table():
    [task] = [dataclasses.replace(t, prompts=(4,)) for t in FULL.tasks if t.name == "addition"]
    seconds = {cost_name("addition-P4", m): 0.1 if m != "pods" else 0.15 for m in METHODS}
    extent = dataclasses.replace(FULL, num_seeds=3, num_tuning_seeds=1).extent(task, [9, 0, 1, 2], seconds)
    slopes = {"grpo": (0.005, 4), "pods": (0.01, 16), "random": (0.005, 16), "grpo_ga": (0.002, 16)}
    records = [record(m, s, slope, n) for m, (slope, n) in slopes.items() for s in (9, 0, 1, 2)]
    return regime_table(extent, {r.trial: r for r in records}, seconds)


def test_ratios_are_of_steps_seconds_and_rollouts(table):
    ratio = table["addition-P4"]["ratios"]["pods"]["0.5"]
    assert ratio["measured"]["value"] == pytest.approx(2)
    assert ratio["seconds"]["value"] == pytest.approx(2 / 1.5)
    assert ratio["rollouts"]["value"] == pytest.approx(2 / 4)
    late = table["addition-P4"]["ratios"]["grpo_ga"]["0.5"]["measured"]
    assert (late["value"], late["censored"]) == (pytest.approx(100 / 200), 3)  # its own budget


def test_the_prediction_is_the_models_from_what_was_measured_before_the_threshold(table):
    ratios = table["addition-P4"]["ratios"]
    weights = success_rates(np.array(SUCCESSES), 8)
    own, other = (factors(x, GRID, weights) for x in (grpo(4), pods(16, 4)))
    measured = np.array([[SIGNAL, INTER, INTRA]])
    [expected] = step_ratio(measured, transferred(measured, own, other), 4)
    assert ratios["pods"]["0.25"]["predicted"][0] == pytest.approx(expected, rel=1e-6)
    assert ratios["random"]["0.25"]["predicted"] == pytest.approx([1, 1, 1])
    assert table["addition-P4"]["noise"]["grpo"]["prompts"] == pytest.approx(16)
    assert [x["step"] for x in noise_before(record("grpo", 0, 0.002, 4), 0.5)] == [1, 131]
    assert [x["step"] for x in noise_before(record("grpo", 0, 0.01, 4), 0.5)] == [1]


def test_the_block_is_the_same_from_a_file_and_the_figure_is_drawn(table, tmp_path):
    block = document.regime_block(table)
    assert document.regime_block(json.loads(json.dumps(finite(table)))) == block
    assert "| addition-P4 | PODS | 25 % |" in block
    assert "4.0 + 12.0" in block
    assert document.regime_block({}) == "No reported run is finished yet."
    assert plots.draw_numbers("regime", {}, tmp_path) == []
    [drawn] = plots.draw_numbers("regime", finite(table), tmp_path)
    assert drawn.stat().st_size > 10_000
