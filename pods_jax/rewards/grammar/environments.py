"""Matrices, determinants and distinctions of cases: `\\begin{..}` to `\\end{..}`."""

import re
from collections.abc import Callable

from pods_jax.rewards.grammar.nodes import Call, Items, Matrix, Node, Text
from pods_jax.rewards.grammar.reader import Reader
from pods_jax.rewards.grammar.tokens import Unparsable

_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "vmatrix"})


class Environments(Reader):
    """Reads environments."""

    def environment(self) -> Node:
        name = re.sub(r"\W.*", "", self.take().text.partition("{")[2])
        if name == "cases":
            return self.cases()
        if name not in _MATRICES:
            raise Unparsable(f"environment {name}")
        rows = self.rows(self.sum)
        if len({len(row) for row in rows}) != 1:
            raise Unparsable("ragged matrix")
        matrix = Matrix(tuple(rows))
        return Call("det", (matrix,)) if name == "vmatrix" else matrix

    def rows(self, read: Callable[[], Node]) -> list[tuple[Node, ...]]:
        rows = []
        row = [read()]
        while self.peek().kind != "end":
            if self.accept("&"):
                row.append(read())
            elif self.take().kind == "row":
                rows.append(tuple(row))
                row = []
                if self.peek().kind != "end":
                    row = [read()]
            else:
                raise Unparsable("matrix")
        self.take()
        return [*rows, tuple(row)] if row else rows

    def cases(self) -> Node:
        """Values and the conditions under which they hold."""
        rows = self.rows(self.case)
        if any(len(row) != 2 for row in rows):
            raise Unparsable("cases")
        return Items("cases", tuple(Items("tuple", row) for row in rows))

    def case(self) -> Node:
        while self.peek().text.lower() in ("if", "for", "when", "where"):
            self.take()
        if self.peek().kind in ("text", "name") and self.peek().text.lower() in ("otherwise", "else"):
            self.take()
            return Text("otherwise")
        cell = self.relation()
        self.accept(",")
        return cell
