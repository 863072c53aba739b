"""Names that are too long for a panel go above it, and leave it its size."""

import dataclasses

import numpy as np
import pytest
from matplotlib.figure import Figure

from pods_jax.analysis import figures
from pods_jax.analysis.curves import Curves
from pods_jax.analysis.figures import Line, Panel, accuracy_and_cost, small_multiples
from pods_jax.analysis.style import look_of

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
