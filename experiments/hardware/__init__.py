"""Tables of what the papers' sizes need, compiled for slices that are not there; the command is `hardware.py`."""

from pathlib import Path

from hardware import attention, decoding, layouts, slices
from hardware.table import Table

FOLDER = Path(__file__).parents[2] / "docs" / "planning"

TABLES = {
    "attention": Table(attention.cells, attention.markdown),
    "decoding": Table(decoding.cells, decoding.markdown),
    "layouts": Table(layouts.cells, layouts.markdown),
    "slices": Table(slices.cells, slices.markdown),
}
