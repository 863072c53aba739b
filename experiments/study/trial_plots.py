"""Figures of the study of a pretrained language model, as PNG files."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from pods_jax.analysis.curves import Curves
from pods_jax.analysis.figures import Line, Panel, add_note, draw_curves
from pods_jax.analysis.style import Look, new_figure
from study.extents import Extent
from study.trial_tables import WINDOW, StepCosts, curves, reported
from study.trials import Record, Records

LABELS = {"steps": "training step", "seconds": "steps x seconds of a step (s)", "rollouts": "rollouts generated"}
"""The panels' axes."""


def draw_trials(
    extent: Extent,
    records: Records,
    step_costs: Mapping[str, StepCosts],
    compared: Sequence[Sequence[str]],
    out: Path,
) -> list[Path]:
    """Draws each setting that has a reported run as smollm2_NAME.png.

    Args:
      step_costs: by setting, where they were measured; a panel of times has the methods whose steps were.
      compared: the methods of each row; a row whose first method has no reported run is left out.
    """
    drawn = []
    for setting in extent.settings:
        rows = [_found(extent, setting.name, methods, records) for methods in compared]
        rows = [_lines(extent, runs, step_costs.get(setting.name, {})) for runs in rows if runs]
        if rows:
            drawn.append(_draw_setting(setting.name, rows, setting.thresholds, out / f"smollm2_{setting.name}.png"))
    return drawn


def _found(extent: Extent, setting: str, methods: Sequence[str], records: Records) -> dict[str, dict[int, Record]]:
    """The runs of the methods that have a reported one, by method and seed; none if the first one has none."""
    runs = {method: reported(extent, setting, method, records) for method in methods}
    return {method: found for method, found in runs.items() if found} if runs[methods[0]] else {}


def _lines(extent: Extent, runs: Mapping[str, Mapping[int, Record]], step_costs: StepCosts) -> dict[str, list[Line]]:
    """Lines by axis; of one that no method has: none."""
    looks = {method: _counted(extent.methods[method].look, len(found)) for method, found in runs.items()}
    over_steps = {method: curves(found, "step") for method, found in runs.items()}
    over = {
        "steps": over_steps,
        "seconds": {m: Curves(c.x * step_costs[m]["step"], c.y) for m, c in over_steps.items() if m in step_costs},
        "rollouts": {method: curves(found, "rollouts/generated") for method, found in runs.items()},
    }
    return {axis: [Line(looks[m], found, {}) for m, found in by_method.items()] for axis, by_method in over.items()}


def _counted(look: Look, seeds: int) -> Look:
    return dataclasses.replace(look, label=f"{look.label} ({seeds} seed{'s' if seeds > 1 else ''})")


def _draw_setting(name: str, rows: Sequence[Mapping[str, list[Line]]], thresholds: Sequence[float], path: Path) -> Path:
    note = (
        f"{name}: greedy accuracy on 64 test problems, means of the last {WINDOW} evaluations over seeds; bands are "
        "Student's 95 % intervals. Dotted: the thresholds. All rollouts generated count, trained on or not."
    )
    axes_drawn = [axis for axis in LABELS if all(row[axis] for row in rows)]
    with new_figure(height_in=2.4 * len(rows) + 0.4) as figure:
        grid = figure.subplots(len(rows), len(axes_drawn), squeeze=False, sharex="col", sharey=True)
        for panels, row in zip(grid, rows, strict=True):
            for axes, axis in zip(panels, axes_drawn, strict=True):
                draw_curves(axes, row[axis], Panel(LABELS[axis], "accuracy (%)", thresholds=thresholds))
                axes.label_outer()
            panels[-1].legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none")
        add_note(figure, note)
        figure.savefig(path)
    return path
