"""Plus-minus signs: a formula with them is the list of its values."""

import itertools
from collections.abc import Iterator

from pods_jax.rewards.grammar.nodes import Call, Items, Node, Quantity, Relation, children

MAX_SIGNS = 3


def with_both_signs(node: Node) -> Node:
    r"""A formula with plus-minus signs, or a list of such, as the list of its values.

    Several signs vary independently, unless `\mp` ties them: upper signs together, lower signs together.
    """
    if isinstance(node, Items) and node.kind in ("list", "set"):
        return Items(node.kind, tuple(value for item in node.items for value in _values(item)))
    values = _values(node)
    return Items("list", values) if len(values) > 1 else node


def _values(node: Node) -> tuple[Node, ...]:
    names = [inside.name for inside in _signed_parts(node) if isinstance(inside, Call)]
    count = names.count("pm") + names.count("mp")
    if not count or count > MAX_SIGNS or isinstance(node, Items):
        return (node,)
    if "mp" in names:
        return tuple(_signed(node, itertools.repeat(upper)) for upper in (True, False))
    return tuple(_signed(node, iter(uppers)) for uppers in itertools.product((True, False), repeat=count))


def _signed_parts(node: Node) -> Iterator[Node]:
    """The node and what is inside, as far as `_signed` goes down."""
    yield node
    if isinstance(node, Call | Relation | Quantity):
        for child in children(node):
            yield from _signed_parts(child)


def _signed(node: Node, uppers: Iterator[bool]) -> Node:
    """The node with its signs, from left to right, as `uppers` says: whether the upper one is taken."""
    match node:
        case Call(("pm" | "mp") as sign, (left, right)):
            plus = next(uppers) == (sign == "pm")
            left = _signed(left, uppers)
            right = _signed(right, uppers)
            return Call("add", (left, right if plus else Call("neg", (right,))))
        case Call(name, args):
            return Call(name, tuple(_signed(arg, uppers) for arg in args))
        case Relation(operators, sides):
            return Relation(operators, tuple(_signed(side, uppers) for side in sides))
        case Quantity(value, unit):
            return Quantity(_signed(value, uppers), unit)
    return node
