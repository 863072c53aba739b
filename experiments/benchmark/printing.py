"""Measurements printed as tables."""

from typing import Any

from rich.console import Console
from rich.table import Table

UNITS = {
    "peak_bytes": ("peak GB", 1e9, ".2f"),
    "bytes_per_s": ("GB/s", 1e9, ",.0f"),
    "flops_per_s": ("GFLOP/s", 1e9, ",.1f"),
}
"""Column to heading, divisor and format; others are shown as they are."""


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Rows may lack columns; a row with a note stands below the table, as a line."""
    measured = [row for row in rows if "note" not in row]
    columns = list(dict.fromkeys(column for row in measured for column in row))
    table = Table(title=title)
    for column in columns:
        words = any(isinstance(row.get(column), str) for row in measured)
        table.add_column(UNITS.get(column, (column,))[0], justify="left" if words else "right")
    for row in measured:
        table.add_row(*(_shown(column, row.get(column)) for column in columns))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for row in rows:
        if "note" in row:
            console.print(f"{row['case']}, {row['side']}: {row['note']}")


def _shown(column: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    _, divisor, digits = UNITS.get(column, ("", 1, ",.0f" if abs(value) >= 100 else ".3g"))
    return format(value / divisor, digits)
