"""Determinants and ranks of matrices of numbers."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

MAX_SIZE = 6


class NotSquare(Exception):
    """The matrix has no determinant, or is too large for one here."""


def determinant(rows: Sequence[Sequence[Any]]) -> Any:
    """The determinant by expansion along the first row: sums and products only, so that any kind of number will do.

    Raises:
      NotSquare: also for more than `MAX_SIZE` rows.
    """
    size = len(rows)
    if size > MAX_SIZE or any(len(row) != size for row in rows):
        raise NotSquare
    return _expanded(rows, tuple(range(size)), {})


def _expanded(rows: Sequence[Sequence[Any]], columns: tuple[int, ...], known: dict[tuple[int, ...], Any]) -> Any:
    """The determinant of the last rows and as many columns; known: those that were computed, by columns."""
    if columns not in known:
        first = rows[len(rows) - len(columns)]
        total: Any = 0 if len(columns) > 1 else first[columns[0]]
        for place, column in enumerate(columns if len(columns) > 1 else ()):
            minor = _expanded(rows, columns[:place] + columns[place + 1 :], known)
            total += (-1) ** place * first[column] * minor
        known[columns] = total
    return known[columns]


def rank(rows: Sequence[Sequence[Fraction]]) -> int:
    """The rank, by elimination."""
    left = [list(row) for row in rows]
    found = 0
    for column in range(len(left[0])):
        pivot = next((place for place in range(found, len(left)) if left[place][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        for row in left[found + 1 :]:
            factor = row[column] / left[found][column]
            row[:] = [entry - factor * top for entry, top in zip(row, left[found], strict=True)]
        found += 1
    return found
