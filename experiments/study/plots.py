"""The study's figures, as PNG files."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from pods_jax.analysis.curves import PHASES
from pods_jax.analysis.figures import Line, Panel, accuracy_and_cost, add_note, draw_curves
from pods_jax.analysis.style import LOOKS, Look, new_figure
from study.definition import ALLOCATION, LEARNING, TARGETS, THRESHOLDS, VARIANTS, WINDOW
from study.estimates import CostModel
from study.extents import Extent
from study.tables import (
    Found,
    Numbers,
    cost_model,
    find,
    in_seconds,
    main_pods,
    rollout_curves,
    seconds_by_size,
    step_curves,
)
from study.trial_tables import WINDOW as TRIAL_WINDOW
from study.trial_tables import curves as trial_curves
from study.trial_tables import reported
from study.trials import Records

TIME = "training time: steps x common step cost (s)"
TRIAL_AXES = {"step": "training step", "rollouts/generated": "rollouts generated"}
METHOD_TABLES = ("main", "larger")
"""Tables of methods, whose progress per step is drawn too."""
ACCURACY = "test accuracy at T = 1 (%)"


def draw_learning(name: str, workdir: Path, costs: Numbers, out: Path) -> list[Path]:
    """Draws a table of `LEARNING`: accuracy over time beside the seconds of a step, and for methods also over steps."""
    found = find(LEARNING[name], workdir)
    over_time = _draw_over_time(name, found, costs, out / f"{name}.png")
    return (
        [over_time, _draw_over_steps(name, found, out / f"{name}_steps.png")] if name in METHOD_TABLES else [over_time]
    )


def _draw_over_time(name: str, found: Found, costs: Numbers, path: Path) -> Path:
    curves = in_seconds(step_curves(found), costs)
    lines = [Line(_look(name, v), curves[v], _phases(costs["variants"][v]["seconds"])) for v in curves]
    accuracy_and_cost(path, lines, Panel(TIME, ACCURACY, thresholds=(THRESHOLDS[1],)), _note(found))
    return path


def _draw_over_steps(name: str, found: Found, path: Path) -> Path:
    lines = [Line(_look(name, v), c, {}) for v, c in step_curves(found).items()]
    return _draw_only_curves(path, lines, Panel("training step", ACCURACY, thresholds=(THRESHOLDS[1],)))


def draw_allocation(name: str, workdir: Path, out: Path) -> Path:
    """Draws a table of `ALLOCATION`: accuracy over rollouts generated, up to twice those of the first baseline."""
    table = ALLOCATION[name]
    curves = rollout_curves(find(table, workdir))
    lines = [Line(VARIANTS[v].look, c, {}) for v, c in curves.items()]
    panel = Panel("rollouts generated, all counted", ACCURACY, thresholds=TARGETS)
    return _draw_only_curves(out / f"{name}.png", lines, panel, x_max=2 * curves[table.baselines[0]].x[-1])


def _draw_only_curves(path: Path, lines: list[Line], panel: Panel, x_max: float | None = None) -> Path:
    with new_figure(height_in=2.6) as figure:
        axes = figure.subplots()
        draw_curves(axes, lines, panel)
        axes.set_xlim(right=x_max)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        figure.savefig(path)
    return path


def draw_trials(extent: Extent, records: Records, out: Path) -> list[Path]:
    """Draws each setting that has a reported run as smollm2_NAME.png: a column for each wave of methods."""
    drawn = []
    for setting in extent.settings:
        waves = [_trial_lines(extent, setting.name, wave, records) for wave in extent.waves]
        waves = [runs for runs in waves if runs]
        if waves:
            drawn.append(_draw_setting(setting.name, waves, setting.thresholds, out / f"smollm2_{setting.name}.png"))
    return drawn


def _trial_lines(extent: Extent, setting: str, wave: Sequence[str], records: Records) -> dict[str, dict[str, Line]]:
    """Lines by axis and method, of the methods that have a reported run."""
    runs = {method: reported(extent, setting, method, records) for method in wave}
    present = {method: found for method, found in runs.items() if found}
    lines = {
        axis: {
            m: Line(_counted(extent.methods[m].look, len(found)), trial_curves(found, axis), {})
            for m, found in present.items()
        }
        for axis in TRIAL_AXES
    }
    return lines if present else {}


def _counted(look: Look, seeds: int) -> Look:
    return dataclasses.replace(look, label=f"{look.label} ({seeds} seed{'s' if seeds > 1 else ''})")


def _draw_setting(name: str, waves: Sequence[Mapping], thresholds: Sequence[float], path: Path) -> Path:
    note = (
        f"{name}: greedy accuracy on 64 test problems, means of the last {TRIAL_WINDOW} evaluations over seeds; bands "
        "are Student's 95 % intervals. Dotted: the thresholds. All rollouts generated count, trained on or not."
    )
    with new_figure(height_in=2.3 * len(TRIAL_AXES) + 0.3) as figure:
        grid = figure.subplots(len(TRIAL_AXES), len(waves), squeeze=False, sharey=True)
        for row, (axis, label) in zip(grid, TRIAL_AXES.items(), strict=True):
            for axes, wave in zip(row, waves, strict=True):
                draw_curves(axes, list(wave[axis].values()), Panel(label, "accuracy (%)", thresholds=thresholds))
        for axes in grid[0]:
            axes.legend(loc="upper left")
        add_note(figure, note)
        figure.savefig(path)
    return path


def draw_regime(numbers: Numbers, out: Path) -> Path | None:
    """Draws measured ratios of steps over predicted ones as regime.png, a panel for each task; None without any."""
    tasks: dict[str, dict[str, Numbers]] = {}
    for name, table in numbers.items():
        tasks.setdefault(name.rpartition("-P")[0], {})[name] = table
    if not tasks:
        return None
    note = (
        "Ratios of GRPO's steps to the task's higher threshold over the method's. Predicted: from success rates and "
        "noise scale that GRPO's own runs measured before it, 95 % intervals. Measured: paired seeds, Student's 95 % "
        "intervals. Numbers are P, prompts per step. On the dotted line they agree."
    )
    path = out / "regime.png"
    with new_figure(height_in=2.6) as figure:
        grid = figure.subplots(1, len(tasks), squeeze=False)[0]
        for axes, (task, tables) in zip(grid, tasks.items(), strict=True):
            _draw_task(axes, task, list(tables.values()))
        grid[0].set_ylabel("ratio of steps, measured")
        handles = {h.get_label(): h for axes in grid for h in axes.get_legend_handles_labels()[0]}
        figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=len(handles))
        add_note(figure, note)
        figure.savefig(path)
    return path


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


def _draw_ratio(axes: Axes, look: Look, num_prompts: int, ratio: Numbers) -> None:
    """Draws one point with both intervals, if the method or GRPO is there with any seed."""
    measured, (x, *x_bounds) = ratio["measured"], ratio["predicted"]
    y = measured["value"]
    if not np.isfinite(y):
        return
    y_bounds = [measured[k] if np.isfinite(measured[k]) else y for k in ("low", "high")]
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
        f"Means of {len(found.seeds)} seed(s), of the last {WINDOW} evaluations; bands are Student's 95 % intervals. "
        f"Dotted: {100 * THRESHOLDS[1]:.0f} %. Evaluation and compilation are not training time."
    )
