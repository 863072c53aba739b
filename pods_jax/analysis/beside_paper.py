"""Runs of your own in the axes of a figure of the PODS paper."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pods_jax.analysis.curves import Curves, curves_of, first_reach, phase_seconds
from pods_jax.analysis.figures import Line, accuracy_and_cost
from pods_jax.analysis.paper import SETTINGS, Read, accuracy_panel, main_lines, setting_numbers
from pods_jax.analysis.run_groups import RunGroup, looks_of, read_groups
from pods_jax.errors import UserError

UNIT_SECONDS = {"h": 3600.0, "min": 60.0}


def draw_beside(name: str, read: Read, folders: Sequence[Path | str], path: Path) -> dict[str, Any]:
    """Draws a main comparison of the paper and the runs of some folders over training time, as a PNG.

    Args:
      name: a key of `pods_jax.analysis.paper.SETTINGS`.
      read: of `pods_jax.analysis.published_file.reader`.
      folders: of workdirs, at any depth; their accuracies should be of the same data set.

    Returns:
      the authors' "threshold" and "unit", and "reached": by label the time of each own mean curve to it, inf for never.

    Raises:
      UserError: no such comparison, or a folder without runs.
    """
    if name not in SETTINGS:
        raise UserError(f"no figure '{name}' (there are {', '.join(SETTINGS)})")
    setting = SETTINGS[name]
    published = read(setting.baseline), read(setting.pods)
    numbers = setting_numbers(*published)
    own = [line for folder in folders for line in _own_lines(read_groups(Path(folder)), UNIT_SECONDS[setting.unit])]
    note = f"{setting.title}. Dotted: 99 % of the best of the authors' {setting.baseline_look.label}."
    accuracy_and_cost(path, [*main_lines(name, published), *own], accuracy_panel(name, numbers), note)
    reached = {line.look.label: first_reach(line.curves, numbers["threshold"]) for line in own}
    return {"threshold": numbers["threshold"], "unit": setting.unit, "reached": reached}


def _own_lines(groups: Sequence[RunGroup], unit_seconds: float) -> list[Line]:
    """Dashed, so that a method of the authors' and one's own are told apart."""
    lines = []
    for look, group in zip(looks_of(groups), groups, strict=True):
        curves = curves_of(group.runs)
        own = dataclasses.replace(look, label=f"own {look.label}", line="--")
        step_s = fmean(phase_seconds(run)["step"] for run in group.runs)
        lines.append(Line(own, Curves(curves.x / unit_seconds, curves.y), {"step": step_s}))
    return lines
