"""Figures and numbers of your own runs, for `experiments/figures.py --runs` and notebooks: every method, every size."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.analysis.curves import (
    AXES,
    PHASES,
    Curves,
    curves_of,
    eval_column,
    half_width,
    phase_seconds,
    rollouts_to_target,
    running_mean,
    speed_up,
    time_to_target,
)
from pods_jax.analysis.figures import Line, Panel, accuracy_and_cost, lengths_panel, small_multiples
from pods_jax.analysis.run_groups import RunGroup, looks_of, main_sizes, read_groups, sized_looks
from pods_jax.errors import UserError
from pods_jax.io import refuse_unwritable


@dataclasses.dataclass(frozen=True)
class View:
    """The choice of what is drawn and told.

    Attributes:
      metric: a key of `eval.jsonl`.
      axis: a key of `AXES`.
      window: curves are running means over so many evaluations.
      target: of the metric; the rollouts and seconds of each run to reach it are told. None: no target.

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

    def curves(self, group: RunGroup) -> Curves:
        return curves_of(group.runs, self.metric, self.axis).smoothed(self.window)


def draw(folder: Path, out: Path, view: View) -> dict[str, Any]:
    """Draws the figures that the workdirs below a folder allow as `out/NAME.png`, or `NAME_DATA-SET.png` for several.

    methods: every method at the main sizes (those of most runs). n_scaling, m_scaling: PODS and GRPO at other sizes.
    rules: the selection rules at the main sizes. lengths: completion lengths of the groups in methods.

    Returns:
      "groups": the numbers by group; "warnings": a line for each run or group that is not drawn, or is unfinished;
      "figures": the files drawn.

    Raises:
      UserError: no runs, a damaged file, no such metric, a target beyond it, or `out` cannot be a folder.
    """
    refuse_unwritable(out, "--out")
    warnings: list[str] = []
    groups = read_groups(folder, warnings.append, view.metric)
    _refuse_percent(groups, view)
    out.mkdir(parents=True, exist_ok=True)
    by_data_set: dict[str, list[RunGroup]] = {}
    for group in groups:
        by_data_set.setdefault(group.data_set, []).append(group)
    numbers: dict[str, Any] = {}
    figures: list[str] = []
    for name, same in by_data_set.items():
        ending = f"_{_file_name(name)}.png" if len(by_data_set) > 1 else ".png"
        chosen = choose(same)
        figures += [str(path) for path in _draw_data_set(out, ending, chosen, view)]
        warnings += _not_drawn(same, chosen)
        numbers |= {group.label: _numbers(group, same, view) for group in same}
    return {"groups": numbers, "warnings": warnings, "figures": sorted(figures)}


def _refuse_percent(groups: Sequence[RunGroup], view: View) -> None:
    """Raises a UserError if the target is above 1, and no value of the metric is."""
    highest = max(max(eval_column(run, view.metric)) for group in groups for run in group.runs)
    if view.target is not None and view.target > 1 >= highest:
        raise UserError(f"the target must be in (0, 1], as '{view.metric}' is a share, got {view.target:g}")


def _file_name(data_set: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", data_set.replace(" = ", "="))


# ---------------------------------------------------------------- figures


def choose(groups: Sequence[RunGroup]) -> dict[str, list[RunGroup]]:
    """The groups of each figure of one data set, in the order in which they are drawn; only figures with groups."""
    n, m = main_sizes(groups)
    sized = {"pods", "grpo"}
    figures = {
        "methods": [g for g in groups if g.method not in sized or (g.n, g.m) in ((n, m), (m, m))] or list(groups),
        "n_scaling": _by_size([g for g in groups if g.m == m and g.method in sized], "n"),
        "m_scaling": _by_size([g for g in groups if g.n == n and g.method == "pods"], "m"),
        "rules": [g for g in groups if (g.n, g.m) == (n, m) and g.config["allocation.name"] == "uniform"],
    }
    return {name: chosen for name, chosen in figures.items() if name == "methods" or len(chosen) > 1}


def _by_size(groups: Sequence[RunGroup], size: str) -> list[RunGroup]:
    """The groups in order of size; none, if there is only one size."""
    ordered = sorted(groups, key=lambda g: getattr(g, size))
    return ordered if len({getattr(g, size) for g in groups}) > 1 else []


def _not_drawn(groups: Sequence[RunGroup], figures: Mapping[str, Sequence[RunGroup]]) -> list[str]:
    """A line for each group that is in no figure."""
    n, m = main_sizes(groups)
    drawn = {g.label for chosen in figures.values() for g in chosen}
    return [
        f"{g.label} is in no figure: it has n = {g.n} and m = {g.m}, and most runs have n = {n} and m = {m}"
        for g in groups
        if g.label not in drawn
    ]


def _draw_data_set(out: Path, ending: str, figures: Mapping[str, Sequence[RunGroup]], view: View) -> list[Path]:
    """Draws the figures of one data set; returns their files."""
    main = main_sizes(figures["methods"])
    paths = []
    for name, chosen in figures.items():
        looks = sized_looks(chosen, name[0], main) if name.endswith("scaling") else looks_of(chosen)
        lines = [Line(look, view.curves(g), _mean_seconds(g)) for look, g in zip(looks, chosen, strict=True)]
        paths.append(out / f"{name}{ending}")
        accuracy_and_cost(paths[-1], lines, panel_of(view), _note(chosen, view))
    measured = [g for g in figures["methods"] if all("mean_length" in e for run in g.runs for e in run.evals)]
    if measured:
        paths.append(out / f"lengths{ending}")
        _draw_lengths(paths[-1], measured, view)
    return paths


def _draw_lengths(path: Path, groups: Sequence[RunGroup], view: View) -> None:
    view = dataclasses.replace(view, metric="mean_length")
    lines = [Line(look, view.curves(g), {}) for look, g in zip(looks_of(groups), groups, strict=True)]
    small_multiples(path, {"": (lines, lengths_panel(AXES[view.axis]))}, columns=1)


def panel_of(view: View) -> Panel:
    """The panel of a metric: lengths are in tokens, all else in per cent."""
    x_label = AXES[view.axis]
    if view.metric.endswith("mean_length"):
        return lengths_panel(x_label)
    return Panel(x_label, f"{view.metric.replace('_', ' ')} (%)")


def _note(groups: Sequence[RunGroup], view: View) -> str:
    counts = sorted({len(g.runs) for g in groups})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    smoothed = f" Means of the last {view.window} evaluations." if view.window > 1 else ""
    data_set = groups[0].data_set
    return f"Test problems of {data_set}; bands are Student's 95 % intervals over {runs} run(s) of each.{smoothed}"


# ---------------------------------------------------------------- numbers


def _numbers(group: RunGroup, groups: Sequence[RunGroup], view: View) -> dict[str, Any]:
    """Accuracies, seconds a step, and speed-ups over each baseline among the groups, with intervals over seeds.

    "last" is the mean of each run's own last evaluation; curves end where the first of the runs does.
    """
    curves = view.curves(group)
    lasts = np.array([running_mean(eval_column(run, view.metric), view.window)[-1] for run in group.runs])
    phases = _phases(group)
    best = int(curves.mean.argmax())
    baselines = [b for b in groups if b.method in ("grpo", "grpo_ga") and b is not group]
    return {
        "method": group.method,
        "data_set": group.data_set,
        "n": group.n,
        "m": group.m,
        "num_runs": len(group.runs),
        "last": float(lasts.mean()),
        "last_half_width": float(half_width(lasts)),
        "peak": float(curves.mean[best]),
        "peak_at": float(curves.x[best]),
        "seconds_per_step": {phase: float(seconds.mean()) for phase, seconds in phases.items()},
        "seconds_per_step_half_width": float(half_width(phases["step"])),
        "speed_up_over": {b.label: _speed_up(view.curves(b), curves) for b in baselines},
    } | ({} if view.target is None else _to_target(group, view))


def _phases(group: RunGroup) -> dict[str, np.ndarray]:
    """Seconds a step by phase, [S] each."""
    seconds = [phase_seconds(run) for run in group.runs]
    return {phase: np.array([s[phase] for s in seconds]) for phase in seconds[0]}


def _mean_seconds(group: RunGroup) -> dict[str, float]:
    phases = _phases(group)
    return {phase: float(phases[phase].mean()) for phase in (*PHASES, "other")}


def _speed_up(baseline: Curves, method: Curves) -> dict[str, float]:
    """The fields of a `SpeedUp`; ratio and interval are NaN unless both get there, and after the start."""
    found = speed_up(baseline, method)
    none = {} if 0 < found.ratio < np.inf else dict.fromkeys(("ratio", "low", "high"), np.nan)
    return dataclasses.asdict(found) | none


def _to_target(group: RunGroup, view: View) -> dict[str, list[float | None]]:
    """Rollouts and seconds of each run until its evaluations reached the target; None where they did not."""
    costs = {"rollouts_to_target": rollouts_to_target, "seconds_to_target": time_to_target}
    return {
        name: [cost(run.evals, view.target, metric=view.metric, window=view.window) for run in group.runs]
        for name, cost in costs.items()
    }


# ---------------------------------------------------------------- words


def speed_up_in_words(numbers: Mapping[str, float]) -> str:
    """The ratio of a `SpeedUp`, given its fields, or why there is none."""
    if math.isinf(numbers["method"]):
        return "not reached"
    if numbers["method"] == 0:
        return "reached before training"
    if math.isinf(numbers["baseline"]):
        return "reached, and not by the baseline"
    if numbers["baseline"] == 0:
        return "reached, and by the baseline before training"
    return f"{numbers['ratio']:.2f}x{_interval_in_words(numbers['low'], numbers['high'])}"


def _interval_in_words(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" [{interval_in_words(low, high).replace(' to ', ', ')}]"


def interval_in_words(low: float, high: float) -> str:
    """The interval of a `SpeedUp`; unknown if it has none, or none that evaluations so far apart can tell."""
    if math.isnan(low) or low == high:
        return "unknown"
    return f"{low:.2f} to {'no bound' if math.isinf(high) else f'{high:.2f}'}"


def with_half_width(value: float, half_width: float) -> str:
    """The value, with its half-width if it has one."""
    return f"{value:.4f}" if math.isnan(half_width) else f"{value:.4f} +- {half_width:.4f}"
