"""The study's figures."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from pods_jax.analysis.curves import PHASES
from pods_jax.analysis.figures import Line, Panel, accuracy_and_cost, draw_curves
from pods_jax.analysis.style import LOOKS, Look, new_figure
from study.definition import ALLOCATION, LEARNING, TARGETS, THRESHOLDS, VARIANTS, WINDOW
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

TIME = "training time: steps x common step cost (s)"
ACCURACY = "test accuracy at T = 1 (%)"


def draw_learning(name: str, workdir: Path, costs: Numbers, out: Path) -> Path:
    """Accuracy against wall-clock beside the seconds of a step, of one of `LEARNING`."""
    found = find(LEARNING[name], workdir)
    curves = in_seconds(step_curves(found), costs)
    lines = [Line(_look(name, v), curves[v], _phases(costs["variants"][v]["seconds"])) for v in curves]
    path = out / f"{name}.png"
    accuracy_and_cost(path, lines, Panel(TIME, ACCURACY, threshold=THRESHOLDS[1]), _note(found))
    return path


def draw_steps(name: str, workdir: Path, out: Path) -> Path:
    """Accuracy against steps, where a step's cost has no part, of one of `LEARNING`."""
    found = find(LEARNING[name], workdir)
    lines = [Line(_look(name, v), c, {}) for v, c in step_curves(found).items()]
    return _curves_alone(out / f"{name}_steps.png", lines, Panel("training step", ACCURACY, threshold=THRESHOLDS[1]))


def draw_allocation(name: str, workdir: Path, out: Path) -> Path:
    """Accuracy against rollouts generated, of one of `ALLOCATION`, as far as twice the first baseline's run."""
    table = ALLOCATION[name]
    curves = rollout_curves(find(table, workdir))
    lines = [Line(VARIANTS[v].look, c, {}) for v, c in curves.items()]
    panel = Panel("rollouts generated, all counted", ACCURACY, threshold=TARGETS[-1])
    return _curves_alone(out / f"{name}.png", lines, panel, x_max=2 * curves[table.baselines[0]].x[-1])


def _curves_alone(path: Path, lines: list[Line], panel: Panel, x_max: float | None = None) -> Path:
    with new_figure(height_in=2.6) as figure:
        axes = figure.subplots()
        draw_curves(axes, lines, panel)
        axes.set_xlim(right=x_max)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        figure.savefig(path)
    return path


def draw_costs(name: str, costs: Numbers, out: Path) -> Path:
    """Measured seconds per step over n and over m with the fit, and what PODS saves on machines with other c / b."""
    model, points = cost_model(costs), seconds_by_size(costs)
    main = (main_pods(costs)["n"], main_pods(costs)["m"])
    path = out / f"{name}.png"
    with new_figure(height_in=2.4) as figure:
        over_n, over_m, gain = figure.subplots(1, 3)
        _draw_fit(over_n, {n: s for (n, m), s in points.items() if m == main[1]}, lambda n: model.step(n, main[1]))
        _draw_fit(over_m, {m: s for (n, m), s in points.items() if n == main[0]}, lambda m: model.step(main[0], m))
        over_n.set(xlabel=f"n rollouts generated (m = {main[1]})", ylabel="seconds per step")
        over_m.set(xlabel=f"m rollouts trained on (n = {main[0]})")
        shares = np.geomspace(0.1, 100, 200)
        gain.plot(shares, model.gain(*main, shares), color=LOOKS["pods"].color)
        here = model.c / model.b
        gain.plot([here], [model.gain(*main)], marker="o", markersize=5, color=LOOKS["pods"].color)
        gain.annotate("here", (here, model.gain(*main)), xytext=(-4, 4), textcoords="offset points", ha="right")
        gain.axhline(1.7, color="#444444", linestyle=":", linewidth=0.8)
        gain.set(xscale="log", xlabel="c / b (to train / to generate)")
        gain.set(ylabel=f"step cost, m = {main[0]} over m = {main[1]}")
        figure.savefig(path)
    return path


def _draw_fit(axes: Axes, measured: Mapping[int, float], fit) -> None:
    sizes = np.array(sorted(measured))
    line = np.linspace(0, sizes[-1], 50)
    axes.plot(line, fit(line), color="#666666", label="a + b n + c m")
    axes.plot(sizes, [measured[s] for s in sizes], "o", color=LOOKS["pods"].color, label="measured")
    axes.set(ylim=(0, None), xlim=(0, None))
    axes.legend()


def _look(table: str, variant: str) -> Look:
    """A variant's look; in an ablation over sizes the main methods say which size they have."""
    sizes = {"n": {"grpo": 16, "pods": 64}, "m": {"pods": 16, "grpo_ga": 64}}.get(table, {})
    look = VARIANTS[variant].look
    return dataclasses.replace(look, label=f"{table} = {sizes[variant]} ({look.label})") if variant in sizes else look


def _phases(seconds: Mapping[str, float]) -> dict[str, float]:
    return {p: seconds[p] for p in PHASES} | {"other": max(0.0, seconds["step"] - sum(seconds[p] for p in PHASES))}


def _note(found: Found) -> str:
    return (
        f"Means of {len(found.seeds)} seed(s), running over {WINDOW} evaluations; bands are 1.96 standard errors. "
        f"Dotted: {100 * THRESHOLDS[1]:.0f} %. Evaluation and compilation are not training time."
    )
