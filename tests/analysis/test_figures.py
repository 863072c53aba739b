"""Text on bars and in legends, bands, the learning curve of a run, and that none of this imports JAX."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from pods_jax.analysis import figures
from pods_jax.analysis.curves import Curves
from pods_jax.analysis.figures import (
    Line,
    Panel,
    accuracy_and_cost,
    draw_costs,
    draw_curves,
    learning_curve,
    small_multiples,
)
from pods_jax.analysis.style import look_of, new_figure

CONFIG = {
    "data": {"name": "toy"},
    "selection": {"rule": "max_variance", "num_kept": 4},
    "rollout": {"num_generations": 8},
    "seed": 0,
}


def test_a_learning_curve_of_a_run_still_going_on(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "eval.jsonl").write_text('{"step": 0, "wall_time_s": 0.0, "accuracy": 0.1, "greedy_accuracy": 0.2}\n')
    learning_curve(tmp_path, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_analysis_imports_no_jax():
    code = """
import pkgutil, sys, importlib, pods_jax.analysis
for module in pkgutil.iter_modules(pods_jax.analysis.__path__):
    importlib.import_module(f"pods_jax.analysis.{module.name}")
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        ([7.56, 10.12], ["7.56", "10.1"]),
        ([7.56, 10.12, 13.8, 21.3, 0.102], ["7.6", "10", "14", "21", "0.10"]),  # narrow bars
    ],
)
def test_a_bar_bears_the_sum_of_its_phases(seconds, labels):
    nowhere = Curves(np.zeros(1), np.zeros((1, 1)))
    lines = [Line(look_of("pods"), nowhere, {"sample": s / 4, "update": 3 * s / 4}) for s in seconds]
    with new_figure(2.0) as figure:
        axes = figure.subplots()
        draw_costs(axes, lines)
    assert [text.get_text() for text in axes.texts] == labels


SHORT = ("PODS", "GRPO", "random")
LONG = tuple(
    f"PODS, evaluation.num_prompts = {n}, warm_start.num_steps = {n}, training.num_steps = {n}" for n in (1, 2, 3)
)


@pytest.fixture
def drawn(monkeypatch):
    """The figures, kept when they are saved."""
    kept: list[Figure] = []
    finish = figures._finish
    monkeypatch.setattr(figures, "_finish", lambda figure, *args: (finish(figure, *args), kept.append(figure)))
    return kept


def lines_of(labels):
    curves = Curves(np.arange(3.0), np.array([[0.1, 0.5, 0.9]]))
    looks = [dataclasses.replace(look_of("pods"), label=label) for label in labels]
    return [Line(look, curves, {"sample": 1.0, "update": 2.0}) for look in looks]


def size(axes):
    box = axes.get_window_extent()
    return box.width, box.height


def texts(legend):
    return [text.get_text().replace("\N{NO-BREAK SPACE}", " ") for text in legend.get_texts()]


def test_long_names_leave_the_panels_their_size(drawn, tmp_path):
    for labels in (SHORT, LONG):
        accuracy_and_cost(tmp_path / "a.png", lines_of(labels), Panel("step"))
    short, long = drawn
    assert texts(short.axes[0].get_legend()) == list(SHORT)
    assert texts(long.legends[0]) == [f"{i}: {label}" for i, label in enumerate(LONG, start=1)]
    assert [label.get_text() for label in long.axes[1].get_xticklabels()] == ["1", "2", "3"]
    for before, after in zip(short.axes, long.axes, strict=True):
        assert np.all(np.array(size(after)) > 0.9 * np.array(size(before)))
    above = long.legends[0].get_window_extent()
    assert above.y0 > long.axes[0].get_window_extent().y1
    assert above.x1 < long.bbox.width


def test_names_that_do_not_fit_in_a_row_go_above_all_panels(drawn, tmp_path):
    for labels in (SHORT, LONG):
        panels = {title: (lines_of(labels), Panel("step")) for title in "ab"}
        small_multiples(tmp_path / "a.png", panels, columns=2)
    short, long = drawn
    assert [texts(axes.get_legend()) for axes in short.axes] == [list(SHORT)] * 2
    assert texts(long.legends[0]) == list(LONG)
    assert size(long.axes[0])[1] > 0.9 * size(short.axes[0])[1]


def test_names_that_fit_in_one_row_above_all_panels_are_in_one(drawn, tmp_path):
    labels = [f"method {i}" for i in range(5)]
    small_multiples(tmp_path / "a.png", {title: (lines_of(labels), Panel("step")) for title in "ab"}, columns=2)
    [row] = [figure.legends[0] for figure in drawn]
    assert texts(row) == labels
    assert len({round(text.get_window_extent().y0) for text in row.get_texts()}) == 1
    assert row.get_window_extent().x1 < drawn[0].bbox.width


@pytest.mark.parametrize(("last", "insets"), [(0.9, 1), (0.79, 0)])
def test_an_inset_magnifies_what_all_curves_reach(last, insets):
    curves = [Curves(np.arange(3.0), np.array([[0.1, 0.85, y]])) for y in (0.95, last)]
    curves[1].y[:, 1] = 0.5
    with new_figure(2.0) as figure:
        axes = figure.subplots()
        draw_curves(axes, [Line(look_of("pods"), c, {}) for c in curves], Panel("step", inset=(80.0, 100.0)))
    assert [(inside.get_xlim(), inside.get_ylim()) for inside in axes.child_axes] == [((1, 2), (80, 100))] * insets


def test_bands_of_shares_stay_between_0_and_100_per_cent():
    """One bad seed of two, whose standard errors are as large as all there is."""
    curves = Curves(np.arange(3.0), np.array([[0.1, 0.9, 1.0], [0.1, 0.0, 0.3]]))
    with new_figure(2.0) as figure:
        axes = figure.subplots()
        draw_curves(axes, [Line(look_of("pods"), curves, {})], Panel("step"))
    [band] = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.0, 100.0)
