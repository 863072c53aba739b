"""A table of compiled numbers: its rows, kept in a file as they come, and its Markdown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pods_jax.errors import UserError
from pods_jax.io import write_atomic

Numbers = dict[str, Any]


class Cell(NamedTuple):
    """One compilation: the values that name it, and what compiles it and gives these values with the numbers."""

    key: Numbers
    compute: Callable[[], Numbers]


class Table(NamedTuple):
    """All compilations of a table, and the Markdown of those that are there."""

    cells: Callable[[], list[Cell]]
    markdown: Callable[[list[Numbers]], str]


def fill(table: Table, path: Path, only: str) -> list[Numbers]:
    """Numbers of the file, and of those cells that it lacks and whose first value contains `only`.

    Raises:
      UserError: no cell's first value does.
    """
    known = json.loads(path.read_text()) if path.exists() else []
    wanted = [cell for cell in table.cells() if only in next(iter(cell.key.values()))]
    if not wanted:
        names = sorted({str(next(iter(cell.key.values()))) for cell in table.cells()})
        raise UserError(f"--only {only}: no row has it; there are {', '.join(names)}")
    for key, compute in wanted:
        if not any(key.items() <= row.items() for row in known):
            known.append(compute())
            write_atomic(path, json.dumps(known, indent=1) + "\n")
            print(known[-1], flush=True)
    return known
