"""The study's figures, as PNG files."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from pods_jax.analysis.curves import PHASES, Curves
from pods_jax.analysis.figures import Line, Panel, add_note, small_multiples
from pods_jax.analysis.figures import draw_costs as draw_costs_of_steps
from pods_jax.analysis.style import LOOKS, SHADES, Look, new_figure
from study.definition import ALLOCATION, ANSWERS, LEARNING, TARGETS, THRESHOLDS, VARIANTS, WINDOW
from study.estimates import CostModel
from study.tables import (
    Found,
    Numbers,
    at,
    cost_model,
    find,
    in_seconds,
    main_pods,
    ratios_of,
    rollout_curves,
    seconds_by_size,
    step_curves,
)

TIME = "steps x seconds of a step (s)"
METHOD_TABLES = ("main", "larger")
"""Tables of methods, whose progress per step is drawn too."""
ANCHORS = {
    "main": "pods", "larger": "larger-pods", "n": "grpo", "m": "grpo_ga", "statistics": "pods",
    "allocation": "mixed-pilot_commit", "small_batch": "small-pilot_commit",
}  # fmt: skip
"""The method of each table beside which every other one is drawn."""
INSET = (80.0, 100.0)
"""Per cent that insets magnify, where the thresholds are."""
LEVEL_COLORS = (SHADES[0], LOOKS["pods"].color, SHADES[2])
"""Colors of a table's thresholds, from the lowest."""


def draw_learning_curves(name: str, workdir: Path, costs: Numbers, out: Path) -> list[Path]:
    """Draws the curves of a table of `LEARNING`, two methods a panel: over time, and for methods also over steps.

    Nothing is drawn where only one method has runs, as in a quick study.
    """
    found = find(LEARNING[name], workdir)
    if len(found.runs) < 2:
        return []
    over_steps = step_curves(found)
    drawn = [_draw_pairs(name, in_seconds(over_steps, costs), TIME, out / f"{name}_curves.png", _note(found))]
    if name in METHOD_TABLES:
        drawn.append(_draw_pairs(name, over_steps, "training step", out / f"{name}_steps.png", _note(found)))
    return drawn


def draw_allocation_curves(name: str, workdir: Path, out: Path) -> Path:
    """Draws the curves of a table of `ALLOCATION`, two methods a panel, over rollouts generated."""
    found = find(ALLOCATION[name], workdir)
    return _draw_pairs(name, rollout_curves(found), "rollouts generated", out / f"{name}_curves.png", _note(found))


def _draw_pairs(name: str, curves: Mapping[str, Curves], x_label: str, path: Path, note: str) -> Path:
    """Draws the method that a table is about beside each other one, up to twice the shorter run; a point of each."""
    anchor = ANCHORS[name] if ANCHORS[name] in curves else next(iter(curves))
    levels, inset = (THRESHOLDS, INSET) if name in LEARNING else (TARGETS, None)
    panel = Panel(x_label, "accuracy (%)", thresholds=levels, inset=inset)
    panels = {}
    for other in (v for v in curves if v != anchor):
        pair = curves[anchor].x, curves[other].x
        end = max(2 * min(x[-1] for x in pair), *(x[0] for x in pair))
        lines = [Line(_look(name, v), _until(curves[v], end), {}) for v in (anchor, other)]
        panels[f"{lines[0].look.label} and {lines[1].look.label}"] = (lines, panel)
    small_multiples(path, panels, columns=min(3, max(2, len(panels))), note=note)
    return path


def _until(curves: Curves, end: float) -> Curves:
    return Curves(curves.x[curves.x <= end], curves.y[:, curves.x <= end])


# ---------------------------------------------------------------- from the numbers of a table


def draw_numbers(name: str, numbers: Numbers, out: Path) -> list[Path]:
    """Draws what the numbers of a table allow, without the curves of its runs; nothing for those of trials."""
    if "variants" in numbers:
        return [draw_costs(name, numbers, out)]
    if name == "regime":
        return draw_regime(numbers, out)
    if not any(ratios_of(numbers).values()):  # only one method, in a quick study
        return []
    if name in LEARNING:
        return [_draw_speed_ups(name, numbers, out / f"{name}.png")]
    return [_draw_rollout_ratios(name, numbers, out / f"{name}.png")] if name in ALLOCATION else []


def _draw_speed_ups(name: str, numbers: Numbers, path: Path) -> Path:
    """Draws the paired ratios of a table of `LEARNING`, a panel a baseline, and the seconds of a step."""
    count = len(_measured(numbers["speed_ups"]))
    lines = [Line(_look(name, v), _NOWHERE, _phases(r["seconds_per_step"])) for v, r in numbers["rows"].items()]
    with new_figure(height_in=2.8 if count == 1 else 4.8) as figure:
        *panels, last = _panels_before_a_wide_one(figure, count)
        _draw_all_ratios(panels, name, numbers, THRESHOLDS, "time of {}\nover that of")
        _put_levels_above(figure, panels[0])
        draw_costs_of_steps(last, lines)
        add_note(figure, f"{_PAIRED} Times are steps x the common seconds of a step (bars), {_MEDIANS}.")
        figure.savefig(path)
    return path


def _panels_before_a_wide_one(figure: Figure, count: int) -> list[Axes]:
    """One panel has the wide one at its right, several have it below them."""
    if count == 1:
        return list(figure.subplots(1, 2, width_ratios=[1, 1.5]))
    panels = figure.subplot_mosaic([list(range(count)), ["wide"] * count])
    return [panels[key] for key in (*range(count), "wide")]


def _draw_rollout_ratios(name: str, numbers: Numbers, path: Path) -> Path:
    """Draws the paired ratios of a table of `ALLOCATION`, a panel a baseline."""
    with new_figure(height_in=2.4) as figure:
        panels = figure.subplots(1, len(_measured(numbers["ratios"])), squeeze=False)[0]
        _draw_all_ratios(panels, name, numbers, TARGETS, "rollouts of {} over those of")
        _put_levels_above(figure, panels[0])
        add_note(figure, _PAIRED)
        figure.savefig(path)
    return path


_NOWHERE = Curves(np.zeros(1), np.zeros((1, 1)))
_PAIRED = (
    "Geometric means over equal seeds with Student's 95 % intervals, none where fewer than two seeds count; right of 1 "
    "the method needs less than the baseline. Open: some pairs count at a budget."
)
_MEDIANS = "medians of interleaved measurements"


def _measured(by_baseline: Numbers) -> Numbers:
    """The baselines that something is compared with."""
    return {baseline: found for baseline, found in by_baseline.items() if found}


def _draw_all_ratios(
    panels: Sequence[Axes], name: str, numbers: Numbers, levels: Sequence[float], x_label: str
) -> None:
    """Draws the ratios over each baseline, a panel each; a method has the same row in all panels."""
    baselines = _measured(ratios_of(numbers))
    variants = [v for v in numbers["rows"] if any(v in found for found in baselines.values())]
    for axes, (baseline, by_variant) in zip(panels, baselines.items(), strict=True):
        _draw_ratios(axes, {variants.index(v): found for v, found in by_variant.items()}, levels)
        axes.set_xlabel(x_label.format(_look(name, baseline).label))
        axes.set_ylim(len(variants) - 0.5, -0.5)
        axes.set_yticks(range(len(variants)), [""] * len(variants))
    panels[0].set_yticklabels([_look(name, variant).label for variant in variants])


def _draw_ratios(axes: Axes, by_row: Mapping[int, Numbers], levels: Sequence[float]) -> None:
    """Draws the paired ratios that have an interval: in each row a mark a level, in a shade of its own."""
    for place, level in enumerate(levels):
        style = {"color": LEVEL_COLORS[place], "marker": "osD"[place]}
        axes.plot([], [], linestyle="", **style, label=f"to {100 * level:.0f} %")
        for row, found in by_row.items():
            _draw_interval(axes, found[str(level)]["paired"], row + 0.22 * (place - 1), **style)
    axes.axvline(1, color="#444444", linewidth=0.8)
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis)
    axes.grid(axis="y", visible=False)


def _put_levels_above(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3, handletextpad=0.2)


def _draw_interval(axes: Axes, found: Numbers, y: float, color: str, marker: str) -> None:
    if any(found[key] is None or not np.isfinite(found[key]) for key in ("value", "low", "high")):
        return
    ends = [[found["value"] - found["low"]], [found["high"] - found["value"]]]
    face = "white" if found.get("censored") else color
    axes.errorbar(found["value"], y, xerr=ends, color=color, marker=marker, markerfacecolor=face, capsize=0)


def _plain_ticks(axis: Axis) -> None:
    """Ratios as 0.5, 1 and 2 on a logarithmic axis, the nearer to each other the smaller its range."""
    low, high = axis.get_view_interval()
    ticks = [0.1, 0.3, 1, 3, 10] if high > 15 * low else [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4]
    axis.set_major_locator(FixedLocator(ticks if high > 2 * low else np.round(np.arange(0.1, 4, 0.1), 1)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def draw_answers(results: Mapping[str, Numbers], out: Path) -> Path:
    """Draws the ratios of `ANSWERS` beside what the papers claim, as answers.png."""
    answers = [a for a in ANSWERS if at(results, a.place)]
    found = [at(results, a.place) for a in answers]
    path = out / "answers.png"
    with new_figure(height_in=0.5 + 0.25 * len(answers)) as figure:
        axes = figure.subplots()
        for row, (answer, ratio) in enumerate(zip(answers, found, strict=True)):
            low, high = answer.claimed
            axes.barh(row, min(high, _WIDEST) - low, 0.6, low, color="#CFCFCF", label="paper" if row == 0 else None)
            _draw_interval(axes, ratio, row, LOOKS["pods"].color, "o")
        axes.plot([], [], "o-", color=LOOKS["pods"].color, label="here")
        axes.axvline(1, color="#444444", linewidth=0.8)
        axes.set_xscale("log")
        axes.set(
            xlim=(None, _WIDEST),
            ylim=(len(answers) - 0.5, -0.5),
            xlabel="cost of the one named last over that of the first",
        )
        _plain_ticks(axes.xaxis)
        axes.set_yticks(range(len(answers)), [answer.question for answer in answers])
        axes.grid(axis="y", visible=False)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        add_note(figure, f'{_PAIRED} A claim of "at least" has no right end.')
        figure.savefig(path)
    return path


_WIDEST = 4.5


# ---------------------------------------------------------------- trials of a language model


def draw_regime(numbers: Numbers, out: Path) -> list[Path]:
    """Draws regime.png: for each task measured ratios of steps over predicted ones, and ratios of time over P.

    Nothing is drawn without a result.
    """
    tasks: dict[str, dict[str, Numbers]] = {}
    for name, table in numbers.items():
        tasks.setdefault(name.rpartition("-P")[0], {})[name] = table
    if not tasks:
        return []
    note = (
        "GRPO's steps (above) and time (below) to the task's higher threshold, over the method's. Predicted: from "
        "success rates and noise scale that GRPO's own runs measured before it, 95 % intervals. Measured: paired seeds "
        "with Student's 95 % intervals. Numbers are P, prompts per step. On the dotted lines both agree (above), and "
        "the method is as fast as GRPO (below)."
    )
    path = out / "regime.png"
    with new_figure(height_in=4.8) as figure:
        grid, times = figure.subplots(2, len(tasks), squeeze=False)
        for axes, below, (task, tables) in zip(grid, times, tasks.items(), strict=True):
            _draw_task(axes, task, list(tables.values()))
            _draw_times(below, list(tables.values()))
        grid[0].set_ylabel("ratio of steps, measured")
        times[0].set_ylabel("ratio of time, measured")
        handles = {h.get_label(): h for axes in grid for h in axes.get_legend_handles_labels()[0]}
        figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=len(handles))
        add_note(figure, note)
        figure.savefig(path)
    return [path]


def _draw_task(axes: Axes, task: str, tables: Sequence[Numbers]) -> None:
    for table in tables:
        for method, found in table["ratios"].items():
            _draw_ratio(axes, LOOKS[method], table["num_prompts"], list(found.values())[-1])
    axes.set(xscale="log", yscale="log", xlabel="ratio of steps, predicted", title=task)
    bounds = [f(*axes.get_xlim(), *axes.get_ylim()) for f in (min, max)]
    axes.plot(bounds, bounds, color="#444444", linestyle=":", linewidth=0.8)
    axes.set(xlim=bounds, ylim=bounds, aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def _draw_times(axes: Axes, tables: Sequence[Numbers]) -> None:
    """Draws the ratios of time to the higher threshold over P, the methods side by side."""
    methods = list(dict.fromkeys(method for table in tables for method in table["ratios"]))
    for place, method in enumerate(methods):
        found = {i: list(t["ratios"][method].values())[-1] for i, t in enumerate(tables) if method in t["ratios"]}
        ratios = [ratio["seconds"] for ratio in found.values()]
        y, low, high = ([np.nan if r[k] is None else r[k] for r in ratios] for k in ("value", "low", "high"))
        x = np.array(list(found)) + 0.15 * (place - (len(methods) - 1) / 2)
        look = LOOKS[method]
        bounds = np.nan_to_num(np.abs(np.subtract([low, high], y)))  # a single seed has none
        axes.errorbar(x, y, bounds, color=look.color, marker=look.marker, markersize=4, linewidth=0.6)
    axes.axhline(1, color="#444444", linestyle=":", linewidth=0.8)
    axes.set(yscale="log", xlabel="P, prompts per step")
    axes.set_xticks(range(len(tables)), [str(table["num_prompts"]) for table in tables])
    _plain_ticks(axes.yaxis)


def _draw_ratio(axes: Axes, look: Look, num_prompts: int, ratio: Numbers) -> None:
    """Draws one point with both intervals, if the method or GRPO is there with any seed."""
    x, *x_bounds = ratio["predicted"]
    y, *y_bounds = (np.nan if ratio["measured"][k] is None else ratio["measured"][k] for k in ("value", "low", "high"))
    if not np.isfinite(y):
        return
    y_bounds = [bound if np.isfinite(bound) else y for bound in y_bounds]  # a single seed has none
    errors = ([[max(0.0, v - low)], [max(0.0, high - v)]] for v, (low, high) in ((x, x_bounds), (y, y_bounds)))
    known = axes.get_legend_handles_labels()[1]
    label = None if look.label in known else look.label
    style = {"color": look.color, "marker": look.marker, "markersize": 4, "linewidth": 0.6, "label": label}
    axes.errorbar(x, y, None, None, **style)
    axes.errorbar(x, y, *reversed(list(errors)), fmt="none", ecolor=look.color, elinewidth=0.6)
    axes.annotate(str(num_prompts), (x, y), xytext=(4, 2), textcoords="offset points", fontsize=6, color=look.color)


def draw_costs(name: str, costs: Numbers, out: Path) -> Path:
    """Draws seconds per step over n and over m with the fit, and the saving by PODS on machines with other c / b."""
    model = cost_model(costs)
    points = seconds_by_size(costs)
    n_main = main_pods(costs)["n"]
    m_main = main_pods(costs)["m"]
    path = out / f"{name}.png"
    with new_figure(height_in=2.4) as figure:
        over_n, over_m, gain = figure.subplots(1, 3)
        _draw_fit(over_n, {n: s for (n, m), s in points.items() if m == m_main}, lambda n: model.step(n, m_main))
        _draw_fit(over_m, {m: s for (n, m), s in points.items() if n == n_main}, lambda m: model.step(n_main, m))
        over_n.set(xlabel=f"n rollouts generated (m = {m_main})", ylabel="seconds per step")
        over_m.set(xlabel=f"m rollouts trained on (n = {n_main})")
        _draw_gain(gain, model, n_main, m_main)
        figure.savefig(path)
    return path


def _draw_gain(axes: Axes, model: CostModel, n: int, m: int) -> None:
    """Draws the cost of a step that trains on all over one that trains on m, as c / b varies."""
    color = LOOKS["pods"].color
    shares = np.geomspace(0.1, 100, 200)
    here = (model.c / model.b, model.gain(n, m))
    axes.plot(shares, model.gain(n, m, shares), color=color)
    axes.plot(*here, marker="o", markersize=5, color=color)
    axes.annotate("here", here, xytext=(-4, 4), textcoords="offset points", ha="right")
    axes.axhline(1.7, color="#444444", linestyle=":", linewidth=0.8)
    axes.set(xscale="log", xlabel="c / b (to train / to generate)", ylabel=f"step cost, m = {n} over m = {m}")


def _draw_fit(axes: Axes, measured: Mapping[int, float], fit: Callable[[np.ndarray], np.ndarray]) -> None:
    sizes = np.array(sorted(measured))
    line = np.linspace(0, sizes[-1], 50)
    axes.plot(line, fit(line), color="#666666", label="a + b n + c m")
    axes.plot(sizes, [measured[s] for s in sizes], "o", color=LOOKS["pods"].color, label="measured")
    axes.set(ylim=(0, None), xlim=(0, None))
    axes.legend()


def _look(table: str, variant: str) -> Look:
    """A variant's look; in an ablation over sizes the labels of the main methods have their size."""
    sizes = {"n": {"grpo": 16, "pods": 64}, "m": {"pods": 16, "grpo_ga": 64}}.get(table, {})
    look = VARIANTS[variant].look
    return dataclasses.replace(look, label=f"{table} = {sizes[variant]} ({look.label})") if variant in sizes else look


def _phases(seconds: Mapping[str, float]) -> dict[str, float]:
    return {p: seconds[p] for p in PHASES} | {"other": max(0.0, seconds["step"] - sum(seconds[p] for p in PHASES))}


def _note(found: Found) -> str:
    return (
        f"Test accuracy at T = 1, means of {len(found.seeds)} seed(s) and of the last {WINDOW} evaluations; bands are "
        "Student's 95 % intervals. Curves end with a method's shortest run. Dotted: the thresholds. Evaluation and "
        "compilation are not training time."
    )
