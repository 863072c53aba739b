"""The forms of figures: accuracy beside the cost of a step, and completion lengths."""

import dataclasses
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pods_jax.analysis.curves import Curves, running_mean
from pods_jax.analysis.runs import read_run
from pods_jax.analysis.style import Look, fit_in_a_row, height_in, is_long, new_figure, put_above


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """One method in a figure: its curves, and the seconds of a step by phase (one phase if that is all one knows)."""

    look: Look
    curves: Curves
    seconds: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Panel:
    """How curves are drawn.

    Attributes:
      x_label, y_label: with units. y_scale: what values are multiplied with.
      fit_from: the x from which the range of y counts (a first point far below would flatten the rest).
      y_max: a bound of the range of y, such as 100 for per cent.
      threshold: a dotted line, in the unit of the values.
    """

    x_label: str
    y_label: str = "test accuracy (%)"
    y_scale: float = 100.0
    fit_from: float = -np.inf
    y_max: float = 100.0
    threshold: float | None = None


def lengths_panel(x_label: str) -> Panel:
    """Of completion lengths."""
    return Panel(x_label, "completion length (tokens)", 1.0, y_max=np.inf)


def accuracy_and_cost(path: Path, lines: Sequence[Line], panel: Panel, note: str = "") -> None:
    """A PNG: mean curves with bands of 1.96 standard errors on the left, seconds a step on the right.

    Long names are numbered, above the panels, and the bars bear the numbers.

    note: what a reader must know, below the panels.
    """
    numbers = [str(i) for i in range(1, len(lines) + 1)]
    labels = [f"{i}: {line.look.label}" for i, line in zip(numbers, lines, strict=True)]
    long = is_long([line.look.label for line in lines])
    height = 2.6 + 0.12 * len(_wrapped(note)) + (height_in(labels) if long else 0)
    with new_figure(height) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(3, 1 + 0.12 * len(lines)))
        draw_curves(left, _renamed(lines, labels) if long else lines, panel)
        if long:
            put_above(figure)
        else:
            left.legend(loc="lower right")
        draw_costs(right, _renamed(lines, numbers) if long else lines)
        _finish(figure, path, note)


def _renamed(lines: Sequence[Line], labels: Sequence[str]) -> list[Line]:
    return [
        dataclasses.replace(line, look=dataclasses.replace(line.look, label=label))
        for line, label in zip(lines, labels, strict=True)
    ]


def small_multiples(
    path: Path, panels: Mapping[str, tuple[Sequence[Line], Panel]], columns: int = 3, note: str = ""
) -> None:
    """A PNG of one panel of curves for each title, with the names in each; above all, if they do not fit in a row."""
    rows = -(-len(panels) // columns)
    by_panel = [[line.look.label for line in lines] for lines, _ in panels.values()]
    inside = all(fit_in_a_row(labels, columns) for labels in by_panel)
    extra = 0 if inside else height_in(list(dict.fromkeys(itertools.chain(*by_panel))))
    with new_figure(height_in=1.9 * rows + 0.12 * len(_wrapped(note)) + extra) as figure:
        grid = figure.subplots(rows, columns, squeeze=False).flat
        for axes, (title, (lines, panel)) in zip(grid, panels.items(), strict=False):
            draw_curves(axes, lines, panel, headroom=0.22 if inside else 0.05)
            axes.set_title(title)
            if inside:
                axes.legend(
                    loc="upper center", ncols=len(lines), columnspacing=0.8, handlelength=1.2, handletextpad=0.5
                )
        if not inside:
            put_above(figure)
        for axes in list(grid)[len(panels) :]:
            axes.remove()
        _finish(figure, path, note)


def draw_curves(axes: Axes, lines: Sequence[Line], panel: Panel, headroom: float = 0.05) -> None:
    """Means with markers, bands where there are two runs or more. headroom: free space on top, as a share."""
    lows, highs = [], []
    for look, curves in ((line.look, line.curves) for line in lines):
        mean, half = panel.y_scale * curves.mean, panel.y_scale * curves.half_width
        style = {"color": look.color, "marker": look.marker, "linestyle": look.line, "label": look.label}
        axes.plot(curves.x, mean, markevery=max(1, len(mean) // 16), **style)
        axes.fill_between(curves.x, mean - half, mean + half, color=look.color, alpha=0.18, linewidth=0)
        counts = curves.x >= panel.fit_from
        lows.append(np.min((mean - np.nan_to_num(half))[counts]))
        highs.append(np.max((mean + np.nan_to_num(half))[counts]))
    if panel.threshold is not None:
        axes.axhline(panel.y_scale * panel.threshold, color="#444444", linestyle=":", linewidth=0.8, zorder=1)
    low, high = max(min(lows), 0.0), min(max(highs), panel.y_max)
    span = (high - low) or 1.0
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, ylim=(low - 0.05 * span, high + headroom * span))


def draw_costs(axes: Axes, lines: Sequence[Line]) -> None:
    """Bars of seconds a step, phases stacked from dark to light, with the sum on top."""
    phases, places = list(lines[0].seconds), range(len(lines))
    alphas = [1 - 0.8 * i / len(phases) for i in range(len(phases))]
    bottoms = np.zeros(len(lines))
    for phase, alpha in zip(phases, alphas, strict=True):
        heights = np.array([line.seconds[phase] for line in lines])
        axes.bar(places, heights, 0.65, bottoms, color=[line.look.color for line in lines], alpha=alpha)
        bottoms += heights
    digits, size = (3, 7) if len(lines) < 5 else (2, 6)  # more would run into each other
    for place, total in zip(places, bottoms, strict=True):
        text = f"{total:#.{digits}g}".removesuffix(".")
        axes.annotate(text, (place, total), ha="center", va="bottom", fontsize=size)
    labels = [line.look.label for line in lines]
    axes.set_xticks(places, labels)
    if len("".join(labels)) > 12:
        axes.tick_params(axis="x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    axes.set(ylabel="seconds per step", ylim=(0, 1.12 * bottoms.max()))
    axes.grid(axis="x", visible=False)
    if len(phases) > 1:
        keys = [Patch(color="black", alpha=a, label=p) for p, a in zip(phases, alphas, strict=True)]
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1, 1), reverse=True, handlelength=1)


def _finish(figure: Figure, path: Path, note: str) -> None:
    if note:
        figure.supxlabel("\n".join(_wrapped(note)), fontsize=6.5, x=0.01, ha="left", color="#444444")
    figure.savefig(path)


def _wrapped(note: str) -> list[str]:
    return textwrap.wrap(note, 125)


# ---------------------------------------------------------------- a run's curve


def learning_curve(workdir: Path, out: Path) -> None:
    """Test accuracy against training time, and training reward with kept variance against steps, as a PNG."""
    run = read_run(workdir)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    time_s = [e["wall_time_s"] for e in run.evals]
    for key, label in (("accuracy", "sampled"), ("greedy_accuracy", "greedy")):
        if all(key in e for e in run.evals):
            left.plot(time_s, [100 * e[key] for e in run.evals], marker="o", markersize=3, label=label)
    left.set(xlabel="training time (s), evaluation and compilation excluded", ylabel="test accuracy (%)", ylim=(0, 100))
    left.legend(loc="lower right")
    steps = [m["step"] for m in run.metrics]
    for key, label in (
        ("reward", "mean reward, all n"),
        ("selection/group_variance", "reward variance, all n"),
        ("selection/kept_variance", "reward variance, kept m"),
    ):
        right.plot(steps, running_mean([m[key] for m in run.metrics], window=9), label=label)
    right.set(xlabel="step", ylabel="mean over 9 steps")
    right.legend()
    figure.suptitle(run.title)
    figure.savefig(out, dpi=150)
