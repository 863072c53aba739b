"""The style of all figures: one look a method everywhere, legible text at a column's width, and legends that fit."""

import contextlib
import dataclasses
import textwrap
from collections.abc import Iterator, Sequence

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WIDTH_IN = 6.5
"""The text width of a one-column page: figures are made for it, so that their 8 points print as 8 points."""


@dataclasses.dataclass(frozen=True)
class Look:
    """Appearance of a curve.

    Attributes:
      label: the name in legends.
      marker: a second cue beside the colour.
      line: the line style, which tells variants of a method apart.
    """

    label: str
    color: str
    marker: str
    line: str = "-"


LOOKS = {
    "grpo": Look("GRPO", "#D55E00", "s"),
    "grpo_ga": Look("GRPO-GA", "#E69F00", "D"),
    "pods": Look("PODS", "#0072B2", "o"),
    "random": Look("random", "#666666", "v"),
    "max_reward": Look("max-reward", "#CC79A7", "^"),
    "percentile": Look("percentile", "#009E73", "P"),
    "pilot_commit": Look("Pilot-Commit", "#000000", "X"),
    "pilot_commit_pods": Look("Pilot-Commit + PODS", "#56B4E9", "h"),
    "dapo": Look("DAPO", "#661100", "*"),
}
"""The look of each method, by name.

The colours are those of Okabe and Ito (2008), which can be told apart under every common colour blindness, and grey; in
place of their yellow, too pale for a line on white, is the brown of Tol's muted scheme.
"""

OTHER_MARKERS = ("<", ">", "p", "d", "8")
"""Markers of methods that are not in `LOOKS`."""

SHADES = ("#41B6C4", "#8C6BB1", "#2A0845", "#A6761D")
"""Colours of PODS at other sizes than the main ones, where it has its own."""

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
    """The look of a method; one that is not in `LOOKS` is black, with a marker chosen by its name."""
    if method in LOOKS:
        return LOOKS[method]
    return Look(method.replace("_", "-"), "#000000", OTHER_MARKERS[sum(map(ord, method)) % len(OTHER_MARKERS)])


@contextlib.contextmanager
def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Iterator[Figure]:
    """An empty figure, for use in a `with` statement: the style holds inside of it. Needs no display."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


# ---------------------------------------------------------------- legends


_LONGEST = 26
_LINE = 95


def is_long(labels: Sequence[str]) -> bool:
    """Whether one of the labels is too long for a legend inside a panel of curves."""
    return max(map(len, labels)) > _LONGEST


def fit_in_a_row(labels: Sequence[str], columns: int) -> bool:
    """Whether the labels, with their markers, fit beside each other in a panel that is one of `columns`."""
    return sum(len(label) + 6 for label in labels) <= 105 // columns


def height_in(labels: Sequence[str]) -> float:
    """Height in inches of the legend that `put_above` makes."""
    lines = 1 if fit_in_a_row(labels, 1) else sum(len(_wrapped(label)) for label in labels)
    return 0.1 + 0.16 * lines


def put_above(figure: Figure) -> None:
    """Puts one legend for all panels above them, in one row if the labels fit, else with a label a line."""
    handles = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = ["\n".join(_wrapped(label)) for label in handles]
    columns = len(labels) if fit_in_a_row(list(handles), 1) else 1
    figure.legend(handles.values(), labels, loc="outside upper left", ncols=columns, columnspacing=1.2)


def _wrapped(label: str) -> list[str]:
    """The label in lines that keep each "key = value" in one piece."""
    return textwrap.wrap(label.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), _LINE)
