"""Determinants of small matrices, as formulas of their entries."""

import functools
from collections.abc import Sequence

from pods_jax.rewards.grammar.nodes import Call, Matrix, Node

MAX_SIZE = 4


def determinant(matrix: Matrix) -> Node:
    """By expansion along the first row; a determinant as written, if the matrix is large or not square."""
    size = len(matrix.rows)
    square = all(len(row) == size for row in matrix.rows)
    return _expanded(matrix.rows) if square and size <= MAX_SIZE else Call("det", (matrix,))


def _expanded(rows: Sequence[Sequence[Node]]) -> Node:
    first, *others = rows
    if not others:
        return first[0]
    terms = [
        Call("mul", (entry, _expanded([[*row[:place], *row[place + 1 :]] for row in others])))
        for place, entry in enumerate(first)
    ]
    signed = [Call("neg", (term,)) if place % 2 else term for place, term in enumerate(terms)]
    return functools.reduce(lambda a, b: Call("add", (a, b)), signed)
