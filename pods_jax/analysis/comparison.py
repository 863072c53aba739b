"""Figures and numbers of your own runs, in the forms of the PODS paper: methods, n, m, rules, completion lengths."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.analysis.curves import AXES, PHASES, Curves, curves_of, half_width, phase_seconds, speed_up
from pods_jax.analysis.groups import Group, main_sizes, read_groups
from pods_jax.analysis.looks import looks_of, sized_looks
from pods_jax.analysis.plots import Line, Panel, accuracy_and_cost, lengths_panel, small_multiples
from pods_jax.analysis.targets import rollouts_to_target, time_to_target
from pods_jax.errors import UserError
from pods_jax.folders import refuse_unwritable


@dataclasses.dataclass(frozen=True)
class View:
    """What is drawn: a key of `eval.jsonl`, against a key of `AXES`, as running means over `window` evaluations.

    target: of the metric, for which each run's rollouts and seconds are told (see `targets`); None: none.

    Raises:
      UserError: the window or the target is not positive.
    """

    metric: str = "accuracy"
    axis: str = "wall_time_s"
    window: int = 1
    target: float | None = None

    def __post_init__(self) -> None:
        if self.window < 1:
            raise UserError(f"the window must be at least 1 evaluation, got {self.window}")
        if self.target is not None and not self.target > 0:
            raise UserError(f"the target must be positive, got {self.target:g}")

    def curves(self, group: Group) -> Curves:
        return curves_of(group.runs, self.metric, self.axis).smoothed(self.window)


def draw(folder: Path, out: Path, view: View) -> dict[str, Any]:
    """Draws what the workdirs below a folder allow as `out/NAME.png`.

    methods: every method at the main sizes (those of most groups). n_scaling, m_scaling: PODS and GRPO at other sizes.
    rules: the selection rules at the main sizes. lengths: of the groups in methods.

    Returns:
      "groups": the numbers by group; "warnings": what `read_groups` warns of; "figures": the files drawn.

    Raises:
      UserError: no runs, a damaged file, no such metric, a target beyond it, or no such folder can be made.
    """
    refuse_unwritable(out, "--out")
    warnings: list[str] = []
    groups = read_groups(folder, warnings.append)
    known = set.intersection(*(set(e) for g in groups for r in g.runs for e in r.evals))
    if view.metric not in known:
        raise UserError(f"the runs in {folder} have no '{view.metric}' (they have {', '.join(sorted(known))})")
    _refuse_percent(groups, view)
    out.mkdir(parents=True, exist_ok=True)
    figures = {name: chosen for name, chosen in choose(groups).items() if name == "methods" or len(chosen) > 1}
    for name, chosen in figures.items():
        looks = sized_looks(chosen, name[0], main_sizes(groups)) if name.endswith("scaling") else looks_of(chosen)
        lines = [Line(look, view.curves(g), _mean_seconds(g)) for look, g in zip(looks, chosen, strict=True)]
        accuracy_and_cost(out / f"{name}.png", lines, panel_of(view), _note(chosen, view))
    drawn = list(figures)
    if "mean_length" in known:
        _draw_lengths(out / "lengths.png", figures["methods"], view)
        drawn.append("lengths")
    return {
        "groups": {g.label: _numbers(g, groups, view) for g in groups},
        "warnings": warnings,
        "figures": sorted(str(out / f"{name}.png") for name in drawn),
    }


def _refuse_percent(groups: Sequence[Group], view: View) -> None:
    """Raises a UserError if the target is above 1, and no value of the metric is."""
    highest = max(e[view.metric] for g in groups for r in g.runs for e in r.evals)
    if view.target is not None and view.target > 1 >= highest:
        raise UserError(f"the target must be in (0, 1], as '{view.metric}' is a share, got {view.target:g}")


def choose(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each figure, in the order in which they are drawn."""
    n, m = main_sizes(groups)
    sized = {"pods", "grpo"}
    return {
        "methods": [g for g in groups if g.method not in sized or (g.n, g.m) in ((n, m), (m, m))] or list(groups),
        "n_scaling": _by_size([g for g in groups if g.m == m and g.method in sized], "n"),
        "m_scaling": _by_size([g for g in groups if g.n == n and g.method == "pods"], "m"),
        "rules": [g for g in groups if (g.n, g.m) == (n, m) and g.config["allocation.name"] == "uniform"],
    }


def _by_size(groups: Sequence[Group], size: str) -> list[Group]:
    """In order of size; none, if there is only one size."""
    ordered = sorted(groups, key=lambda g: getattr(g, size))
    return ordered if len({getattr(g, size) for g in groups}) > 1 else []


def _draw_lengths(path: Path, groups: Sequence[Group], view: View) -> None:
    view = dataclasses.replace(view, metric="mean_length")
    lines = [Line(look, view.curves(g), {}) for look, g in zip(looks_of(groups), groups, strict=True)]
    small_multiples(path, {"": (lines, lengths_panel(AXES[view.axis]))}, columns=1)


def panel_of(view: View) -> Panel:
    """Of lengths in tokens, of anything else in per cent."""
    x_label = AXES[view.axis]
    if view.metric.endswith("mean_length"):
        return lengths_panel(x_label)
    return Panel(x_label, f"{view.metric.replace('_', ' ')} (%)")


def _note(groups: Sequence[Group], view: View) -> str:
    counts = sorted({len(g.runs) for g in groups})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    smoothed = f" Running means over {view.window} evaluations." if view.window > 1 else ""
    return f"Test problems; bands are 1.96 standard errors over {runs} run(s) of each.{smoothed}"


def _phases(group: Group) -> dict[str, np.ndarray]:
    """Seconds a step by phase, [S] each."""
    seconds = [phase_seconds(run) for run in group.runs]
    return {phase: np.array([s[phase] for s in seconds]) for phase in seconds[0]}


def _mean_seconds(group: Group) -> dict[str, float]:
    phases = _phases(group)
    return {phase: float(phases[phase].mean()) for phase in (*PHASES, "other")}


def _numbers(group: Group, groups: Sequence[Group], view: View) -> dict[str, Any]:
    """Accuracies, seconds a step, and speed-ups over each baseline, all with intervals over seeds."""
    curves, phases = view.curves(group), _phases(group)
    best = int(curves.mean.argmax())
    return {
        "method": group.method,
        "n": group.n,
        "m": group.m,
        "num_runs": len(group.runs),
        "last": float(curves.mean[-1]),
        "last_half_width": float(curves.half_width[-1]),
        "peak": float(curves.mean[best]),
        "peak_at": float(curves.x[best]),
        "seconds_per_step": {k: float(v.mean()) for k, v in phases.items()},
        "seconds_per_step_half_width": float(half_width(phases["step"])),
        "speed_up_over": {
            b.label: _speed_up(view.curves(b), curves)
            for b in groups
            if b.method in ("grpo", "grpo_ga") and b is not group
        },
    } | ({} if view.target is None else _to_target(group, view))


def _speed_up(baseline: Curves, method: Curves) -> dict[str, float]:
    """The fields of a `SpeedUp`; ratio and interval are NaN unless both get there, and after the start."""
    found = speed_up(baseline, method)
    none = {} if 0 < found.ratio < np.inf else dict.fromkeys(("ratio", "low", "high"), np.nan)
    return dataclasses.asdict(found) | none


def _to_target(group: Group, view: View) -> dict[str, list[float | None]]:
    """What each run spent until its own evaluations reached the target; None where they did not."""
    costs = {"rollouts_to_target": rollouts_to_target, "seconds_to_target": time_to_target}
    return {
        name: [cost(run.evals, view.target, metric=view.metric, window=view.window) for run in group.runs]
        for name, cost in costs.items()
    }
