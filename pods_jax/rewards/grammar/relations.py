"""Equations and inequalities: the value that one states, its links, and whether two links are the same."""

import itertools
from collections.abc import Callable
from fractions import Fraction

from pods_jax.rewards.grammar import algebra
from pods_jax.rewards.grammar.applications import is_applied
from pods_jax.rewards.grammar.nodes import Call, Interval, Items, Node, Number, Quantity, Relation, Symbol, Text, walk
from pods_jax.rewards.grammar.values import is_true, proportional, real_value

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
ROUNDING = Fraction(1, 20)

_NUMBER_SETS = frozenset({"integers", "naturals", "rationals", "complexes"})


def is_equation(node: Node) -> bool:
    """Whether all that is stated is equality or membership."""
    return isinstance(node, Relation) and set(node.operators) <= {"=", "in"}


def is_inequality(node: Node) -> bool:
    """Whether this is a chain of <, <= and the like, or a single "is not"."""
    return isinstance(node, Relation) and set(node.operators) <= {"<", "<=", ">", ">=", "!="}


def assigned(relation: Relation) -> Node | None:
    """The value in `x = 5`, `f(x) = x + 1`, `x + y = 3`, `D in (0, 1)`, `x = 2 + 3 = 5`, `2 + 3 = 5`; or None."""
    first, last = relation.sides[0], relation.sides[-1]
    if relation.operators == ("in",):
        return last if isinstance(first, Symbol | Text) else None
    if set(relation.operators) != {"="}:
        return None
    if _names_a_value(first):
        numbers = relation.sides[1:]
    elif len(relation.sides) == 2 and isinstance(last, Symbol) and is_number(first):
        return first
    else:
        numbers = relation.sides
    consistent = all(is_true(a, b) for a, b in itertools.pairwise(numbers) if not isinstance(b, Quantity | Items))
    return last if consistent and (len(numbers) == 1 or all(map(is_number, numbers))) else None


def is_number(node: Node) -> bool:
    """Whether a node has no letters or relations inside."""
    return not any(isinstance(part, Symbol | Text | Relation) for part in walk(node))


def _names_a_value(node: Node) -> bool:
    """A side made of letters only, such as x, f(x), x + y, |AB|, (x, y), or a function at a number, f(2)."""
    if is_applied(node):
        return True
    parts = list(walk(node))
    return any(isinstance(part, Symbol | Text) for part in parts) and not any(
        isinstance(part, Number) for part in parts
    )


def exact_and_rounded(node: Node) -> list[Node]:
    r"""The answers that `.. \approx ..` states: what is before the sign, unless that is a name, and what is after it.

    Nothing, if the two are further apart than rounding explains.
    """
    if not isinstance(node, Relation) or "approx" not in node.operators:
        return [node]
    if node.operators[-1] != "approx" or node.operators.count("approx") > 1:
        return []
    *before, rounded = node.sides
    if len(before) == 1 and _names_a_value(before[0]):
        return [rounded]
    exact = before[0] if len(before) == 1 else Relation(node.operators[:-1], tuple(before))
    values = [real_value(_stripped(side)) for side in (before[-1], rounded)]
    if None in values or abs(values[0] - values[1]) > ROUNDING * abs(values[0]):
        return []
    return [exact, rounded]


def _stripped(node: Node) -> Node:
    return node.value if isinstance(node, Quantity) else node


def without_domains(gold: Node, answer: Node) -> tuple[Node, Node] | None:
    r"""Both without items such as `k \in \mathbb{Z}` beside others; None if they give one letter different domains."""
    stated = [_domains(side) for side in (gold, answer)]
    if any(stated[0][name] != stated[1][name] for name in stated[0].keys() & stated[1].keys()):
        return None
    return _other_items(gold), _other_items(answer)


def _domains(node: Node) -> dict[str, Node]:
    items = node.items if isinstance(node, Items) and node.kind == "list" else ()
    return {item.sides[0].name: item.sides[1] for item in items if _is_domain(item)}


def _other_items(node: Node) -> Node:
    if not isinstance(node, Items) or node.kind != "list":
        return node
    others = tuple(item for item in node.items if not _is_domain(item))
    if not others or len(others) == len(node.items):
        return node
    return others[0] if len(others) == 1 else Items("list", others)


def _is_domain(node: Node) -> bool:
    match node:
        case Relation(("in",), (Symbol(), Text(words))):
            return words in _NUMBER_SETS
        case Relation(("in",), (Symbol(), Interval(low, high))):
            return (low, high) == (Call("neg", (Call("inf"),)), Call("inf"))
    return False


# ---------------------------------------------------------------- links of chains


def split_chain(relation: Relation) -> list[Relation]:
    """`a < b < c` as `a < b` and `b < c`."""
    pairs = itertools.pairwise(relation.sides)
    return [Relation((operator,), pair) for operator, pair in zip(relation.operators, pairs, strict=True)]


def same_link(gold: Relation, answer: Relation, same: Callable[[Node, Node], bool]) -> bool:
    """Whether two relations of two sides are the same up to a factor (a positive one for inequalities).

    Equations between polynomials may also differ by a factor without zeros of its own, as `xy = 1` and `y = 1/x` do.
    """
    [operator], [other] = gold.operators, answer.operators
    if other != operator:
        other = FLIPPED[other]
        answer = Relation((other,), answer.sides[::-1])
    if other != operator:
        return False
    if all(map(same, gold.sides, answer.sides)):
        return True
    if not all(isinstance(side, Number | Symbol | Call) for side in (*gold.sides, *answer.sides)):
        return False
    differences = [Call("add", (side[0], Call("neg", (side[1],)))) for side in (gold.sides, answer.sides)]
    if proportional(*differences, positive=operator not in ("=", "!=")):
        return True
    return operator in ("=", "!=") and algebra.same_zeros(*differences)
