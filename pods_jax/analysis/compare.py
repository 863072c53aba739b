"""Workdirs grouped by config, seeds apart: which method each group is, and how it differs from the others."""

import dataclasses
import itertools
import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.analysis.curves import (
    AXES,
    PHASES,
    Curves,
    comparable,
    curves_of,
    half_width,
    phase_seconds,
    remarks,
    rollouts_to_target,
    speed_up,
    time_to_target,
)
from pods_jax.analysis.figures import Line, Panel, accuracy_and_cost, lengths_panel, small_multiples
from pods_jax.analysis.runs import RunRecord, find_runs
from pods_jax.analysis.style import SHADES, Look, look_of
from pods_jax.config.schema import flat
from pods_jax.errors import UserError
from pods_jax.io import refuse_unwritable

SEEDS = ("seed", "warm_start.seed")
_RULES = {"max_variance": "pods", "max_variance_authors": "pods", "max_reward": "max_reward"}


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one config, which differ in their seeds alone.

    Attributes:
      method: a key of `style.METHODS`, or the name of a selection rule or allocator.
      label: the method, with what tells it from other groups of the same method.
      n, m: rollouts generated and kept a prompt.
    """

    method: str
    label: str
    n: int
    m: int
    config: dict[str, Any]
    runs: tuple[RunRecord, ...]


def read_groups(folder: Path, warn: Callable[[str], None] = warnings.warn) -> list[Group]:
    """The groups of all workdirs in a folder, at any depth, that can be compared (see `reach`).

    warn: gets a line for each run that is left out, and for each that is unfinished.

    Raises:
      UserError: there are none, or a file is damaged.
    """
    runs, left_out = find_runs(folder)
    if not runs:
        raise UserError("; ".join([f"{folder} has no workdir with steps and evaluations in it", *left_out]))
    by_config: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_config.setdefault(json.dumps(_unseeded(run.config), sort_keys=True), []).append(run)
    configs = [json.loads(key) for key in by_config]
    methods = [method_of(config, configs) for config in configs]
    labels = _labels(methods, configs)
    unfinished = [remarks(label, found) for label, found in zip(labels, by_config.values(), strict=True)]
    for line in itertools.chain(left_out, *unfinished):
        warn(line)
    columns = zip(methods, labels, configs, by_config.values(), strict=True)
    return [
        Group(method, label, c["rollout.num_generations"], c["selection.num_kept"], c, tuple(comparable(found)))
        for method, label, c, found in columns
    ]


def method_of(config: dict[str, Any], configs: Sequence[dict[str, Any]]) -> str:
    """The method of a flat config among others: GRPO-GA is the GRPO that generates as much as a selecting one."""
    rule, allocator = config["selection.rule"], config["allocation.name"]
    if allocator != "uniform":
        name = "dapo" if allocator == "dynamic_sampling" else allocator
        return name if rule == "all" else f"{name}_{_RULES.get(rule, rule)}"
    if rule != "all":
        return _RULES.get(rule, rule)
    selecting = {_rollouts_a_prompt(c) for c in configs if c["selection.rule"] != "all"}
    return "grpo_ga" if _rollouts_a_prompt(config) in selecting else "grpo"


def _rollouts_a_prompt(config: dict[str, Any]) -> int:
    """In all its groups."""
    return config["rollout.num_generations"] * config.get("allocation.options.groups_per_prompt", 1)


def main_sizes(groups: Sequence[Group]) -> tuple[int, int]:
    """(n, m) that most of the runs that select have; of all runs, if none selects."""
    selecting = [g for g in groups if g.m < g.n] or list(groups)
    return Counter((g.n, g.m) for g in selecting for _ in g.runs).most_common(1)[0][0]


def _labels(methods: Sequence[str], configs: Sequence[dict[str, Any]]) -> list[str]:
    """The method, with what tells it from others of the same method."""
    labels = []
    for method, config in zip(methods, configs, strict=True):
        same = [c for m, c in zip(methods, configs, strict=True) if m == method]
        labels.append(", ".join([look_of(method).label, *differences(same)[same.index(config)]]))
    return labels


def _unseeded(config: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in flat(config).items() if k not in SEEDS}


# ---------------------------------------------------------------- labels


_SHORT = {"rollout.num_generations": "n", "selection.num_kept": "m", "optimizer.learning_rate": "lr"}


def differences(configs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Of each flat config "key = value" for the keys in which two of them differ.

    A key is written without its section where no other section has one of that name.
    """
    keys = sorted(set().union(*configs))
    names = Counter(map(_bare, keys))
    differing = [k for k in keys if any(c.get(k) != configs[0].get(k) for c in configs)]
    shown = {k: _SHORT.get(k) or (k if names[_bare(k)] > 1 else _bare(k)) for k in differing}
    return [[f"{shown[k]} = {config.get(k)}" for k in differing] for config in configs]


def _bare(key: str) -> str:
    return key.rpartition(".")[2]


# ---------------------------------------------------------------- looks of groups


_LINES = ("-", "--", "-.", ":")


def looks_of(groups: Sequence[Group]) -> list[Look]:
    """The methods' looks."""
    return _told_apart(groups, [look_of(g.method) for g in groups])


def sized_looks(groups: Sequence[Group], size: str, main: tuple[int, int]) -> list[Look]:
    """Named by size, "n" or "m". PODS keeps its colour at the main sizes, GRPO at every size; the others get shades."""
    pods = [g for g in groups if g.method == "pods"]
    usual = next((g for g in pods if (g.n, g.m) == main), None)
    shaded = [g for g in pods if g is not usual]
    looks = []
    for g in groups:
        look, label = look_of(g.method), f"{size} = {getattr(g, size)}"
        name = label if g.method == "pods" and (g.n, g.m) != main else f"{label} ({look.label})"
        shade = _shade(shaded.index(g)) if g in shaded else {}
        looks.append(dataclasses.replace(look, label=name, **shade))
    return _told_apart(groups, looks)


def _shade(place: int) -> dict[str, str]:
    return {"color": SHADES[place % len(SHADES)], "marker": "v^DP"[place % len(SHADES)]}


def _told_apart(groups: Sequence[Group], looks: Sequence[Look]) -> list[Look]:
    """Where names are equal, with what differs; where colours and markers are equal, with lines that differ."""
    found = []
    for place, (group, look) in enumerate(zip(groups, looks, strict=True)):
        same = [g for g, other in zip(groups, looks, strict=True) if other.label == look.label]
        parts = differences([g.config for g in same])[same.index(group)]
        before = [other for other in looks[:place] if (other.color, other.marker) == (look.color, look.marker)]
        line = _LINES[len(before) % len(_LINES)]
        found.append(dataclasses.replace(look, label=", ".join([look.label, *parts]), line=line))
    return found


# ---------------------------------------------------------------- the comparison


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
