"""Figures and numbers of your own runs, in the forms of the PODS paper: methods, n, m, rules, completion lengths."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.analysis.curves import AXES, PHASES, Curves, curves_of, half_width, phase_seconds, speed_up
from pods_jax.analysis.groups import Group, main_sizes, read_groups
from pods_jax.analysis.plots import Line, Panel, accuracy_and_cost, lengths_panel, small_multiples
from pods_jax.analysis.style import SHADES, Look, look_of
from pods_jax.analysis.targets import rollouts_to_target, time_to_target
from pods_jax.errors import UserError

_LINES = ("-", "--", "-.", ":")


@dataclasses.dataclass(frozen=True)
class View:
    """What is drawn: a key of `eval.jsonl`, against a key of `AXES`, as running means over `window` evaluations.

    target: of the metric, for which each run's rollouts and seconds are told (see `targets`); None: none.
    """

    metric: str = "accuracy"
    axis: str = "wall_time_s"
    window: int = 1
    target: float | None = None

    def curves(self, group: Group) -> Curves:
        return curves_of(group.runs, self.metric, self.axis).smoothed(self.window)


def draw(folder: Path, out: Path, view: View) -> dict[str, Any]:
    """Draws what the workdirs below a folder allow as `out/NAME.png`. Returns the numbers by group.

    methods: every method at the main sizes (those of most groups). n_scaling, m_scaling: PODS and GRPO at other sizes.
    rules: the selection rules at the main sizes. lengths: of the groups in methods.

    Raises:
      UserError: no runs, or no such metric.
    """
    groups = read_groups(folder)
    known = set.intersection(*(set(e) for g in groups for r in g.runs for e in r.evals))
    if view.metric not in known:
        raise UserError(f"the runs in {folder} have no '{view.metric}' (they have {', '.join(sorted(known))})")
    out.mkdir(parents=True, exist_ok=True)
    figures = {name: chosen for name, chosen in choose(groups).items() if name == "methods" or len(chosen) > 1}
    for name, chosen in figures.items():
        looks = _sized_looks(chosen, name[0], main_sizes(groups)) if name.endswith("scaling") else _looks(chosen)
        lines = [Line(look, view.curves(g), _mean_seconds(g)) for look, g in zip(looks, chosen, strict=True)]
        accuracy_and_cost(out / f"{name}.png", lines, _accuracy_panel(view), _note(chosen, view))
    if "mean_length" in known:
        _draw_lengths(out / "lengths.png", figures["methods"], view)
    return {
        "groups": {g.label: _numbers(g, groups, view) for g in groups},
        "figures": sorted(str(p) for p in out.glob("*.png")),
    }


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


def _looks(groups: Sequence[Group]) -> list[Look]:
    """The methods' looks; variants of a method differ in their lines, and methods without variants need no details."""
    looks = []
    for group in groups:
        same, look = [g for g in groups if g.method == group.method], look_of(group.method)
        label = group.label if len(same) > 1 else look.label
        looks.append(dataclasses.replace(look, label=label, line=_LINES[same.index(group) % len(_LINES)]))
    return looks


def _sized_looks(groups: Sequence[Group], size: str, main: tuple[int, int]) -> list[Look]:
    """PODS keeps its colour at the main size, GRPO at every size; the others get shades."""
    others = [g for g in groups if g.method == "pods" and (g.n, g.m) != main]
    looks = []
    for g in groups:
        look, label = look_of(g.method), f"{size} = {getattr(g, size)}"
        if g in others:
            place = others.index(g)
            looks.append(dataclasses.replace(look, label=label, color=SHADES[place % 4], marker="v^DP"[place % 4]))
        else:
            looks.append(dataclasses.replace(look, label=f"{label} ({look.label})"))
    return looks


def _draw_lengths(path: Path, groups: Sequence[Group], view: View) -> None:
    view = dataclasses.replace(view, metric="mean_length")
    lines = [Line(look, view.curves(g), {}) for look, g in zip(_looks(groups), groups, strict=True)]
    small_multiples(path, {"": (lines, lengths_panel(AXES[view.axis]))}, columns=1)


def _accuracy_panel(view: View) -> Panel:
    return Panel(AXES[view.axis], f"{view.metric.replace('_', ' ')} (%)")


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
            b.label: dataclasses.asdict(speed_up(view.curves(b), curves))
            for b in groups
            if b.method in ("grpo", "grpo_ga") and b is not group
        },
    } | ({} if view.target is None else _to_target(group, view))


def _to_target(group: Group, view: View) -> dict[str, list[float | None]]:
    """What each run spent until its own evaluations reached the target; None where they did not."""
    costs = {"rollouts_to_target": rollouts_to_target, "seconds_to_target": time_to_target}
    return {
        name: [cost(run.evals, view.target, metric=view.metric, window=view.window) for run in group.runs]
        for name, cost in costs.items()
    }
