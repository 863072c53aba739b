"""The tree of a parsed answer. Nodes are immutable, and equal if they are written alike."""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """An exact rational."""

    value: Fraction


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """A letter, perhaps with a subscript."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Words, in lower case, that stand for themselves."""

    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """An operation ("add", "mul", "neg", "div", "pow", "sin", ..) or, without arguments, a constant ("pi", ..)."""

    name: str
    args: "tuple[Node, ...]" = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """Several answers.

    kind: "list" (bare, in any order), "tuple" (ordered), "set", "cases" (pairs of a value and a condition), or an
    operation on regions: "union", "intersection", "difference".
    """

    kind: str
    items: "tuple[Node, ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """From low to high; each end belongs to it or not."""

    low: "Node"
    high: "Node"
    low_closed: bool
    high_closed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """sides[0] operators[0] sides[1] ..; operators are "=", "<", "<=", ">", ">=", "!=", "in", "approx"."""

    operators: tuple[str, ...]
    sides: "tuple[Node, ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of equal length."""

    rows: "tuple[tuple[Node, ...], ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit or a currency in canonical form."""

    value: "Node"
    unit: str


@dataclasses.dataclass(frozen=True, slots=True)
class BaseNumber:
    """Digits that state their base."""

    digits: str
    base: int


Node = Number | Symbol | Text | Call | Items | Interval | Relation | Matrix | Quantity | BaseNumber

INFINITY = Call("inf")
IMAGINARY = Call("i")


def is_free(node: Node) -> bool:
    """Whether this is a symbol that no sum, integral or limit binds."""
    return isinstance(node, Symbol) and not node.name.startswith("#")


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside a node."""
    match node:
        case Call(_, inside) | Items(_, inside) | Relation(_, inside):
            return inside
        case Interval(low, high):
            return low, high
        case Matrix(rows):
            return tuple(entry for row in rows for entry in row)
        case Quantity(value, _):
            return (value,)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all nodes inside it."""
    yield node
    for child in children(node):
        yield from walk(child)


def height(node: Node, max_nodes: int = 5_000) -> int:
    """The number of nodes on the longest way down; at least as many as the limit for trees of more than `max_nodes`.

    Not recursive, unlike all that is done with trees below a limit; nodes that occur twice count twice.
    """
    level = [node]
    count = seen = 0
    while level:
        seen += len(level)
        if seen > max_nodes:
            return max_nodes
        level = [child for parent in level for child in children(parent)]
        count += 1
    return count


def symbols(*nodes: Node) -> list[str]:
    """The names of the symbols in the nodes, sorted, without variables that a sum or an integral binds ("#..")."""
    return sorted({inside.name for node in nodes for inside in walk(node) if is_free(inside)})
