"""Figures of curves: accuracy beside the cost of a step, small multiples, and the learning curve of one run."""

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

from pods_jax.analysis.curves import Curves, eval_column, running_mean
from pods_jax.analysis.runs import RunRecord, read_run
from pods_jax.analysis.style import Look, fit_in_a_row, height_in, is_long, new_figure, put_above
from pods_jax.buckets import ceil_div


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """One method in a figure: its look, its curves, and the seconds of a step by phase (or of "step" only)."""

    look: Look
    curves: Curves
    seconds: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Panel:
    """Axes of a panel of curves.

    Attributes:
      x_label, y_label: with units.
      y_scale: factor from values to what is drawn, such as 100 for per cent.
      fit_from: points before this x do not count for the range of y: a first one far below would flatten the rest. Of a
        curve that ends before it, the last one counts.
      y_max: bound of the range of y and of bands, such as 100 for per cent; the other bound is 0.
      thresholds: values of dotted lines, in the unit of the values.
      inset: range of y, as drawn, that an inset in the lower right corner magnifies, if all curves get there.
    """

    x_label: str
    y_label: str = "test accuracy (%)"
    y_scale: float = 100.0
    fit_from: float = -np.inf
    y_max: float = 100.0
    thresholds: Sequence[float] = ()
    inset: tuple[float, float] | None = None


def lengths_panel(x_label: str) -> Panel:
    """A panel of completion lengths in tokens."""
    return Panel(x_label, "completion length (tokens)", 1.0, y_max=np.inf)


def accuracy_and_cost(path: Path, lines: Sequence[Line], panel: Panel, note: str = "") -> None:
    """Draws mean curves with bands of their 95 % intervals on the left, seconds a step on the right, as a PNG.

    Long labels are above the panels and numbered; the bars then bear the numbers.

    note: text below the panels.
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
    """Draws one panel of curves for each title as a PNG; labels are in each panel, or above all if they do not fit."""
    rows = ceil_div(len(panels), columns)
    by_panel = [[line.look.label for line in lines] for lines, _ in panels.values()]
    inside = all(fit_in_a_row(labels, columns) for labels in by_panel)
    extra = 0 if inside else height_in(list(dict.fromkeys(itertools.chain(*by_panel))))
    with new_figure(height_in=1.9 * rows + 0.12 * len(_wrapped(note)) + extra) as figure:
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, (title, (lines, panel)) in zip(grid, panels.items(), strict=False):
            draw_curves(axes, lines, panel, headroom=0.22 if inside else 0.05)
            axes.set_title(title)
            if inside:
                axes.legend(loc="upper center", ncols=len(lines), **_NARROW_LEGEND)
        if not inside:
            put_above(figure)
        for axes in grid[len(panels) :]:
            axes.remove()
        _finish(figure, path, note)


_NARROW_LEGEND = {"columnspacing": 0.8, "handlelength": 1.2, "handletextpad": 0.5}


def draw_curves(axes: Axes, lines: Sequence[Line], panel: Panel, headroom: float = 0.05) -> None:
    """Draws means with markers, and bands where there are two runs or more.

    headroom: free space on top, as a share of the range.
    """
    ranges = [_draw_curve(axes, line, panel) for line in lines]
    _draw_thresholds(axes, panel)
    low = max(min(low for low, _ in ranges), 0.0)
    high = min(max(high for _, high in ranges), panel.y_max)
    span = (high - low) or 1.0
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, ylim=(low - 0.05 * span, high + headroom * span))
    if panel.inset and all(panel.y_scale * line.curves.mean.max() > panel.inset[0] for line in lines):
        _draw_inset(axes, lines, panel)


def _draw_thresholds(axes: Axes, panel: Panel) -> None:
    for threshold in panel.thresholds:
        axes.axhline(panel.y_scale * threshold, color="#444444", linestyle=":", linewidth=0.8, zorder=1)


def _draw_inset(axes: Axes, lines: Sequence[Line], panel: Panel) -> None:
    """Draws the same curves in the panel's inset, from where the first of them gets into its range."""
    low, high = panel.inset
    inside = axes.inset_axes((0.36, 0.12, 0.62, 0.56))
    for line in lines:
        _draw_curve(inside, line, panel)
    _draw_thresholds(inside, panel)
    entries = [line.curves.x[panel.y_scale * line.curves.mean >= low] for line in lines]
    first = min((entry[0] for entry in entries if len(entry)), default=lines[0].curves.x[0])
    inside.set(xlim=(first, max(line.curves.x[-1] for line in lines)), ylim=(low, high))
    inside.tick_params(labelsize=6, length=2)


def _draw_curve(axes: Axes, line: Line, panel: Panel) -> tuple[float, float]:
    """Draws one mean curve and its band, and returns their range."""
    look = line.look
    x = line.curves.x
    mean = panel.y_scale * line.curves.mean
    half = panel.y_scale * line.curves.half_width
    style = {"color": look.color, "marker": look.marker, "linestyle": look.line, "label": look.label}
    axes.plot(x, mean, markevery=max(1, len(mean) // 16), **style)
    band = np.clip([mean - half, mean + half], 0.0, panel.y_max)
    axes.fill_between(x, *band, color=look.color, alpha=0.18, linewidth=0)
    counts = x >= min(panel.fit_from, x[-1])
    known_half = np.nan_to_num(half)
    return float(np.min((mean - known_half)[counts])), float(np.max((mean + known_half)[counts]))


HATCHES = ("", "////", "....", "xxxx", "----")
"""Patterns of the phases of a step, in their order, which can be told apart in print and without colours."""


def draw_costs(axes: Axes, lines: Sequence[Line]) -> None:
    """Draws bars of seconds a step with the sum on top; stacked phases differ in their hatch and lightness."""
    phases = list(lines[0].seconds)
    styles = [{"alpha": 1 - 0.7 * i / len(phases), "hatch": HATCHES[i % len(HATCHES)]} for i in range(len(phases))]
    sums = np.zeros(len(lines))
    for phase, style in zip(phases, styles, strict=True):
        heights = np.array([line.seconds[phase] for line in lines])
        colors = [line.look.color for line in lines]
        axes.bar(range(len(lines)), heights, 0.65, sums, color=colors, edgecolor="white", linewidth=0, **style)
        sums += heights
    _label_bars(axes, [line.look.label for line in lines], sums)
    axes.set(ylabel="seconds per step", ylim=(0, 1.12 * sums.max()))
    axes.grid(axis="x", visible=False)
    if len(phases) > 1:
        keys = [
            Patch(facecolor="black", edgecolor="white", linewidth=0, label=phase, **style)
            for phase, style in zip(phases, styles, strict=True)
        ]
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1, 1), reverse=True, handlelength=1.6)


def _label_bars(axes: Axes, labels: Sequence[str], sums: np.ndarray) -> None:
    """Writes the sums above the bars and the labels below, tilted where they would run into each other."""
    digits, size = (3, 7) if len(labels) < 5 else (2, 6)
    for place, total in enumerate(sums):
        text = f"{total:#.{digits}g}".removesuffix(".")
        axes.annotate(text, (place, total), ha="center", va="bottom", fontsize=size)
    axes.set_xticks(range(len(labels)), labels)
    if len("".join(labels)) > 12:
        axes.tick_params(axis="x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _finish(figure: Figure, path: Path, note: str) -> None:
    if note:
        add_note(figure, note)
    figure.savefig(path)


def add_note(figure: Figure, note: str) -> None:
    """Writes a note of several lines below the panels."""
    figure.supxlabel("\n".join(_wrapped(note)), fontsize=6.5, x=0.01, ha="left", color="#444444")


def _wrapped(note: str) -> list[str]:
    return textwrap.wrap(note, 125)


# ---------------------------------------------------------------- a run's curve


_ACCURACIES = {"accuracy": "sampled", "greedy_accuracy": "greedy"}
_REWARDS = {
    "reward": "mean reward, all n",
    "selection/group_variance": "reward variance, all n",
    "selection/kept_variance": "reward variance, kept m",
}


def learning_curve(workdir: Path, out: Path) -> None:
    """Draws a run's test accuracy over training time, and its rewards and their variances over steps, as a PNG."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    run = read_run(workdir)
    draw_learning_curve(figure, run)
    figure.suptitle(run.title)
    figure.savefig(out, dpi=150)


def draw_learning_curve(figure: Figure, run: RunRecord) -> None:
    """Test accuracy over training time on the left, rewards and their variances over steps on the right."""
    left, right = figure.subplots(1, 2)
    time_s = [e["wall_time_s"] for e in run.evals]
    for key, label in _ACCURACIES.items():
        if all(key in e for e in run.evals):
            left.plot(time_s, 100 * eval_column(run, key), marker="o", markersize=3, clip_on=False, label=label)
    left.set(xlabel="training time (s), evaluation and compilation excluded", ylabel="test accuracy (%)", ylim=(0, 100))
    left.legend(loc="lower right")
    steps = [m["step"] for m in run.metrics]
    window = smoothing(len(steps))
    for key, label in _REWARDS.items():
        right.plot(steps, running_mean([m[key] for m in run.metrics], window), label=label)
    right.set(xlabel="step", ylabel=f"mean over {window} steps" if window > 1 else None)
    right.legend()


def smoothing(num_steps: int) -> int:
    """The window of running means over a run's steps: 9, and fewer steps in a short run."""
    return max(1, min(9, num_steps // 4))
