"""Sets of real numbers: intervals, finite sets, inequalities, and what is made of them, compared as sets."""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

from pods_jax.rewards.grammar.nodes import INFINITY, Call, Interval, Items, Node, Relation, Symbol
from pods_jax.rewards.grammar.relations import FLIPPED, is_inequality, is_number
from pods_jax.rewards.grammar.values import real_value, same_value

REGIONS = frozenset({"union", "intersection", "difference"})
MAX_PIECES = 40

_MINUS_INFINITY = Call("neg", (INFINITY,))
Same = Callable[[Node, Node], bool]


def same_region(gold: Node, answer: Node, same: Same) -> bool:
    """Whether two answers are the same set of real numbers.

    A pair in round brackets is an open interval here, and a list of inequalities the union of theirs. With ends that
    are numbers the sets are compared at and between all ends; otherwise piece by piece, by `same`.
    """
    regions = [_simplified(side) for side in (gold, answer)]
    if None in regions:
        return False
    ends = [end for region in regions for end in _ends(region)]
    if len(ends) <= 2 * MAX_PIECES:
        places = _places(ends)
        if places is not None:
            return _same_members(*regions, places)
    return _same_pieces(*regions, same)


# ---------------------------------------------------------------- one form for all


def _simplified(node: Node) -> Node | None:
    """Intervals, sets and operations on them; None for what is no set."""
    if isinstance(node, Interval):
        return node
    if isinstance(node, Relation):
        return _solution(node)
    if not isinstance(node, Items) or len(node.items) > MAX_PIECES:
        return None
    if node.kind == "tuple" and len(node.items) == 2:
        return Interval(*node.items, False, False)
    if node.kind == "set":
        return node
    if node.kind not in (*REGIONS, "list"):
        return None
    parts = [_simplified(item) or (item if node.kind == "list" else None) for item in node.items]
    if None in parts:
        return None
    if node.kind != "list":
        return Items(node.kind, tuple(parts))
    excludes = any(isinstance(item, Relation) and "!=" in item.operators for item in node.items)
    return Items("intersection" if excludes else "union", tuple(map(_as_set, parts)))


def _as_set(node: Node) -> Node:
    return node if isinstance(node, Interval | Items) else Items("set", (node,))


def _solution(relation: Relation) -> Node | None:
    """The set that an inequality in one letter describes: `x < 3`, `0 < x <= 5`, `x != 2`; None for others."""
    if relation.operators == ("in",) and isinstance(relation.sides[0], Symbol):
        return _simplified(relation.sides[1])
    if not is_inequality(relation):
        return None
    operators, sides = relation.operators, relation.sides
    if operators[0] in (">", ">="):
        operators = tuple(FLIPPED[operator] for operator in reversed(operators))
        sides = sides[::-1]
    if operators == ("!=",):
        return _all_but(*sides)
    if not set(operators) <= {"<", "<="}:
        return None
    closed = [operator == "<=" for operator in operators]
    match sides:
        case (Symbol(), bound) if is_number(bound):
            return Interval(_MINUS_INFINITY, bound, False, closed[0])
        case (bound, Symbol()) if is_number(bound):
            return Interval(bound, INFINITY, closed[0], False)
        case (low, Symbol(), high) if is_number(low) and is_number(high):
            return Interval(low, high, closed[0], closed[1])
    return None


def _all_but(left: Node, right: Node) -> Node | None:
    if isinstance(right, Symbol):
        left, right = right, left
    if not isinstance(left, Symbol) or not is_number(right):
        return None
    return Items("difference", (Interval(_MINUS_INFINITY, INFINITY, False, False), Items("set", (right,))))


# ---------------------------------------------------------------- as sets of numbers


def _ends(region: Node) -> list[Node]:
    """All ends of intervals and members of sets."""
    if isinstance(region, Interval):
        return [region.low, region.high]
    if isinstance(region, Items) and region.kind == "set":
        return list(region.items)
    return [end for part in region.items for end in _ends(part)]


def _places(ends: Sequence[Node]) -> dict[Node, int] | None:
    """Odd numbers for the ends in their order, equal for equal ends; None if one of them is no real number."""
    values: dict[Node, Fraction] = {}
    for end in ends:
        if end not in (INFINITY, _MINUS_INFINITY):
            value = real_value(end)
            if value is None:
                return None
            values[end] = value
    places: dict[Node, int] = {_MINUS_INFINITY: -1}
    last = None
    place = -1
    for end in sorted(values, key=values.__getitem__):
        if last is None or not same_value(last, end):
            place += 2
        places[end] = place
        last = end
    places[INFINITY] = place + 2
    return places


def _same_members(gold: Node, answer: Node, places: dict[Node, int]) -> bool:
    spots = range(places[INFINITY])  # odd ones are ends, even ones lie between them
    members = [[_contains(region, spot, places) for spot in spots] for region in (gold, answer)]
    return members[0] == members[1] and any(members[0])


def _contains(region: Node, spot: int, places: dict[Node, int]) -> bool:
    if isinstance(region, Interval):
        low, high = places[region.low], places[region.high]
        return low < spot < high or (spot == low and region.low_closed) or (spot == high and region.high_closed)
    if region.kind == "set":
        return any(places[item] == spot for item in region.items)
    inside = [_contains(part, spot, places) for part in region.items]
    if region.kind == "difference":
        return inside[0] and not any(inside[1:])
    return all(inside) if region.kind == "intersection" else any(inside)


# ---------------------------------------------------------------- piece by piece


def _same_pieces(gold: Node, answer: Node, same: Same) -> bool:
    """Equal operations on equal pieces, in any order where it does not matter."""
    left, right = _pieces(gold), _pieces(answer)
    if len(left) != len(right) or _kind(gold) != _kind(answer):
        return False
    orders = itertools.permutations(right) if _kind(gold) != "difference" and len(right) <= 3 else [right]
    return any(all(_same_piece(a, b, same) for a, b in zip(left, order, strict=True)) for order in orders)


def _kind(region: Node) -> str:
    return region.kind if isinstance(region, Items) and region.kind in REGIONS else "piece"


def _pieces(region: Node) -> Sequence[Node]:
    return region.items if _kind(region) != "piece" else (region,)


def _same_piece(gold: Node, answer: Node, same: Same) -> bool:
    if not (isinstance(gold, Interval) and isinstance(answer, Interval)):
        if isinstance(gold, Interval) or isinstance(answer, Interval):
            return False
        regions = _kind(gold) != "piece" or _kind(answer) != "piece"
        return _same_pieces(gold, answer, same) if regions else same(gold, answer)
    ends = (gold.low_closed, gold.high_closed) == (answer.low_closed, answer.high_closed)
    return ends and same(gold.low, answer.low) and same(gold.high, answer.high)
