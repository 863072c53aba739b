"""Where the names of lines go that are too long for a panel: above the figure."""

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

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
