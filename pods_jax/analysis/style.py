"""How figures look: one colour and marker a method everywhere, text that is legible at a column's width."""

import contextlib
import dataclasses
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WIDTH_IN = 6.5
"""The text width of a one-column page: figures are made for it, so that their 8 points print as 8 points."""


@dataclasses.dataclass(frozen=True)
class Look:
    """label: the method's name in legends; marker: a second cue beside the colour; line: a variant's line style."""

    label: str
    color: str
    marker: str
    line: str = "-"


# The eight colours of Okabe and Ito (2008), told apart under every common colour blindness; grey for the control.
METHODS = {
    "grpo": Look("GRPO", "#D55E00", "s"),
    "grpo_ga": Look("GRPO-GA", "#E69F00", "D"),
    "pods": Look("PODS", "#0072B2", "o"),
    "random": Look("random", "#666666", "v"),
    "max_reward": Look("max-reward", "#CC79A7", "^"),
    "percentile": Look("percentile", "#009E73", "P"),
    "pilot_commit": Look("Pilot-Commit", "#000000", "X"),
    "pilot_commit_pods": Look("Pilot-Commit + PODS", "#56B4E9", "h"),
    "dapo": Look("DAPO", "#F0E442", "*"),
}

OTHERS = ("<", ">", "p", "d", "8")
"""Markers of methods that have no look of their own."""

SHADES = ("#41B6C4", "#8C6BB1", "#2A0845", "#A6761D")
"""Other sizes of PODS, whose default keeps its colour."""

_RC = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "figure.dpi": 200,
}


def look_of(method: str) -> Look:
    """The look of a method by its key in `METHODS`; others get black and a marker by name."""
    if method in METHODS:
        return METHODS[method]
    return Look(method.replace("_", "-"), "#000000", OTHERS[sum(map(ord, method)) % len(OTHERS)])


@contextlib.contextmanager
def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Iterator[Figure]:
    """A figure to fill in the style, which only holds inside; needs no display."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


# ---------------------------------------------------------------- legends


_LONGEST = 26
_LINE = 95


def is_long(labels: Sequence[str]) -> bool:
    """Whether a label would cover half a panel of curves, or hang far below its bar."""
    return max(map(len, labels)) > _LONGEST


def fit_in_a_row(labels: Sequence[str], columns: int) -> bool:
    """Whether they do, with their markers, beside each other in one of so many columns of panels."""
    return sum(len(label) + 6 for label in labels) <= 105 // columns


def height_in(labels: Sequence[str]) -> float:
    """What `put_above` needs, in inches."""
    return 0.1 + 0.16 * sum(len(_wrapped(label)) for label in labels)


def put_above(figure: Figure) -> None:
    """One legend of all panels, a name a line, above them."""
    handles = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = ["\n".join(_wrapped(label)) for label in handles]
    figure.legend(handles.values(), labels, loc="outside upper left")


def _wrapped(label: str) -> list[str]:
    """In lines, with "key = value" in one piece."""
    return textwrap.wrap(label.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), _LINE)


# ---------------------------------------------------------------- words


def speed_up_in_words(numbers: Mapping[str, float]) -> str:
    """Of the fields of a `SpeedUp`: the ratio, or why there is none."""
    if math.isinf(numbers["method"]):
        return "not reached"
    if numbers["method"] == 0:
        return "reached before training"
    if math.isinf(numbers["baseline"]):
        return "reached, and not by the baseline"
    if numbers["baseline"] == 0:
        return "reached, and by the baseline before training"
    return f"{numbers['ratio']:.2f}x{_interval(numbers['low'], numbers['high'])}"


def _interval(low: float, high: float) -> str:
    if math.isnan(low):
        return ""
    return f" [{low:.2f}, {'no bound' if math.isinf(high) else f'{high:.2f}'}]"


def with_half_width(value: float, half_width: float) -> str:
    """The value, with its half-width if it has one."""
    return f"{value:.4f}" if math.isnan(half_width) else f"{value:.4f} +- {half_width:.4f}"
