"""When two parsed answers are the same answer. docs/rewards.md lists the conventions."""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

from pods_jax.rewards.grammar.nodes import (
    INFINITY,
    BaseNumber,
    Call,
    Interval,
    Items,
    Matrix,
    Node,
    Number,
    Quantity,
    Relation,
    Symbol,
    Text,
    children,
    walk,
)
from pods_jax.rewards.grammar.values import is_true, proportional, same_value

MAX_ITEMS = 40
MAX_SIGNS = 3

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_ZERO = Number(Fraction(0))
_FORMULAS = Number | Symbol | Call


def equivalent(gold: Node, answer: Node) -> bool:
    """Whether an answer says what the gold says. Not symmetric: what the gold leaves out the answer may add or omit."""
    if gold == answer:
        return True
    gold, answer = _with_both_signs(gold), _with_both_signs(answer)
    if isinstance(gold, Items) != isinstance(answer, Items):
        gold, answer = _unrepeated(gold), _unrepeated(answer)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _same_relation(gold, answer)
    if isinstance(gold, Interval) or isinstance(answer, Interval) or _is_union(gold) or _is_union(answer):
        return _same_region(gold, answer)
    if isinstance(gold, Items) or isinstance(answer, Items):
        return _same_items(gold, answer)
    return _same_single(gold, answer)


# ---------------------------------------------------------------- one value


def _same_single(gold: Node, answer: Node) -> bool:
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _same_matrix(gold, answer)
    if isinstance(gold, Quantity) or isinstance(answer, Quantity):
        return _same_quantity(gold, answer)
    if isinstance(gold, BaseNumber) or isinstance(answer, BaseNumber):
        return _same_digits(gold, answer)
    if not (isinstance(gold, _FORMULAS) and isinstance(answer, _FORMULAS)):
        return _letters(gold) == _letters(answer) != ""
    for unit, rule in (("degree", _same_angle), ("percent", _same_percentage)):
        if _has_unit(gold, unit) or _has_unit(answer, unit):
            return rule(gold, answer)
    if _is_ratio(gold) or _is_ratio(answer):
        return _same_ratio(gold, answer)
    return same_value(gold, answer)


def _same_quantity(gold: Node, answer: Node) -> bool:
    """A unit may be on one side only; two units must be the same."""
    if isinstance(gold, Quantity) and isinstance(answer, Quantity) and gold.unit != answer.unit:
        return False
    return equivalent(*(side.value if isinstance(side, Quantity) else side for side in (gold, answer)))


def _same_angle(gold: Node, answer: Node) -> bool:
    """As numbers of degrees, unless one side says radians; or, where only one side has the sign, with pi/180 for it."""
    radians = _has_unit(gold, "radian") or _has_unit(answer, "radian")
    if not radians and same_value(_bare(gold, "degree"), _bare(answer, "degree")):
        return True
    return _has_unit(gold, "degree") != _has_unit(answer, "degree") and same_value(gold, answer)


def _same_percentage(gold: Node, answer: Node) -> bool:
    """p% is p/100; and it is p, where the other side has no sign and p > 1 (a question that asks for a percentage)."""
    if same_value(gold, answer):
        return True
    bare = [_bare(side, "percent") for side in (gold, answer)]
    over_one = not same_value(Call("max", (Number(Fraction(1)), Call("abs", (bare[0],)))), Number(Fraction(1)))
    return _has_unit(gold, "percent") != _has_unit(answer, "percent") and over_one and same_value(*bare)


def _has_unit(node: Node, name: str) -> bool:
    return _is_call(node, name) or (_is_call(node, "neg") and _is_call(node.args[0], name))


def _bare(node: Node, name: str) -> Node:
    if _is_call(node, name):
        return node.args[0]
    return Call("neg", (node.args[0].args[0],)) if _has_unit(node, name) else node


def _same_ratio(gold: Node, answer: Node) -> bool:
    """a : b : .. up to a common factor; never a number. Times of day and ratios with a 0 have no other form."""
    if not (_is_ratio(gold) and _is_ratio(answer)) or len(gold.args) != len(answer.args):
        return False
    if _is_call(gold, "time") and _is_call(answer, "time"):
        return False
    if any(same_value(term, _ZERO) for term in gold.args + answer.args):
        return False
    pairs = itertools.pairwise(zip(gold.args, answer.args, strict=True))
    return all(same_value(Call("mul", (a, d)), Call("mul", (c, b))) for (a, b), (c, d) in pairs)


def _is_ratio(node: Node) -> bool:
    """Also a time of day: only beside another one it cannot be a ratio, as 15:20 beside 3:4 is."""
    return _is_call(node, "ratio") or _is_call(node, "time")


def _same_digits(gold: Node, answer: Node) -> bool:
    """Equal digits, and equal bases where both state theirs: a value in another base is another answer."""
    bases = {side.base for side in (gold, answer) if isinstance(side, BaseNumber)}
    digits = [_digits(side) for side in (gold, answer)]
    return len(bases) == 1 and digits[0] == digits[1] is not None


def _digits(node: Node) -> str | None:
    if isinstance(node, BaseNumber):
        return node.digits
    return str(node.value) if isinstance(node, Number) else None


def _letters(node: Node) -> str:
    """What a word and a product of letters have in common: how they are written."""
    match node:
        case Text(words):
            return words
        case Symbol(name) | Call(("e" | "i") as name):
            return name.lower()
        case Call("mul", (left, right)):
            return _letters(left) + _letters(right)
    return ""


def _same_matrix(gold: Node, answer: Node) -> bool:
    """Entry by entry; a matrix of one row or column is also a tuple."""
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        if list(map(len, gold.rows)) != list(map(len, answer.rows)):
            return False
    elif not all(_is_vector(side) for side in (gold, answer)):
        return False
    return _in_order(children(gold), children(answer))


def _is_vector(node: Node) -> bool:
    if isinstance(node, Matrix):
        return 1 in (len(node.rows), len(node.rows[0]))
    return isinstance(node, Items) and node.kind == "tuple"


# ---------------------------------------------------------------- several values


def _same_items(gold: Node, answer: Node) -> bool:
    """Tuples by place, also against a bare list; sets and bare lists in any order; never a set as a tuple."""
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _same_matrix(gold, answer)
    kinds = {_kind(gold), _kind(answer)}
    if kinds == {"tuple", "set"} or ("single" in kinds and kinds != {"single", "set"}):
        return False
    left, right = _elements(gold), _elements(answer)
    if max(len(left), len(right)) > MAX_ITEMS:
        return False
    if "tuple" in kinds:
        return _in_order(left, right)
    if "set" in kinds:
        left, right = _distinct(left), _distinct(right)
    return _in_any_order(left, right)


def _kind(node: Node) -> str:
    return node.kind if isinstance(node, Items) else "single"


def _elements(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Items) else (node,)


def _in_order(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    return len(gold) == len(answer) and all(map(equivalent, gold, answer))


def _in_any_order(
    gold: Sequence[Node], answer: Sequence[Node], same: Callable[[Node, Node], bool] = equivalent
) -> bool:
    """A matching: equality is (nearly) transitive, so that the first partner found will do."""
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for wanted in gold:
        place = next((place for place, found in enumerate(left) if same(wanted, found)), None)
        if place is None:
            return False
        del left[place]
    return True


def _distinct(nodes: Sequence[Node]) -> list[Node]:
    kept: list[Node] = []
    for node in nodes:
        if not any(equivalent(other, node) for other in kept):
            kept.append(node)
    return kept


def _unrepeated(node: Node) -> Node:
    """A bare list of one value in several forms ("12x - 34 or -34 + 12x") is that value, where one is asked for."""
    if isinstance(node, Items) and node.kind == "list" and len(node.items) <= MAX_ITEMS:
        first, *others = node.items
        return first if all(equivalent(first, other) for other in others) else node
    return node


def _with_both_signs(node: Node) -> Node:
    """A formula with plus-minus signs, or a list of such, as the list of its values."""
    if isinstance(node, Items) and node.kind in ("list", "set"):
        return Items(node.kind, tuple(value for item in node.items for value in _elements_of_signs(item)))
    values = _elements_of_signs(node)
    return Items("list", values) if len(values) > 1 else node


def _elements_of_signs(node: Node) -> tuple[Node, ...]:
    names = [inside.name for inside in walk(node) if isinstance(inside, Call)]
    count = names.count("pm") + names.count("mp")
    if not count or count > MAX_SIGNS or isinstance(node, Items):
        return (node,)
    if "mp" in names:  # tied: upper signs together, lower signs together
        return tuple(_signed(node, itertools.repeat(upper)) for upper in (True, False))
    return tuple(_signed(node, iter(uppers)) for uppers in itertools.product((True, False), repeat=count))


def _signed(node: Node, uppers) -> Node:
    match node:
        case Call(("pm" | "mp") as sign, (left, right)):
            plus = next(uppers) == (sign == "pm")
            left, right = _signed(left, uppers), _signed(right, uppers)
            return Call("add", (left, right if plus else Call("neg", (right,))))
        case Call(name, args):
            return Call(name, tuple(_signed(arg, uppers) for arg in args))
        case Relation(operators, sides):
            return Relation(operators, tuple(_signed(side, uppers) for side in sides))
        case Quantity(value, unit):
            return Quantity(_signed(value, uppers), unit)
    return node


# ---------------------------------------------------------------- equations and inequalities


def _same_relation(gold: Node, answer: Node) -> bool:
    if isinstance(gold, Relation) and isinstance(answer, Relation) and _is_equation(gold) == _is_equation(answer):
        return _same_relations(gold, answer)
    relation, other = (gold, answer) if _is_equation(gold) or not isinstance(answer, Relation) else (answer, gold)
    assigned = _assigned(relation)
    if assigned is not None:
        return equivalent(assigned, answer) if relation is gold else equivalent(gold, assigned)
    region = _solution(relation)
    return region is not None and not isinstance(other, _FORMULAS) and equivalent(region, other)


def _assigned(relation: Relation) -> Node | None:
    """The value in `x = 5`, `f(x) = x + 1`, `x + y = 3`, `D in (0, 1)`, `x = 2 + 3 = 5`, `2 + 3 = 5`; or None."""
    first, last = relation.sides[0], relation.sides[-1]
    if relation.operators == ("in",):
        return last if isinstance(first, Symbol | Text) else None
    if set(relation.operators) != {"="}:
        return None
    if _names_a_value(first):
        numbers = relation.sides[1:]
    elif len(relation.sides) == 2 and isinstance(last, Symbol) and _is_number(first):
        return first
    else:
        numbers = relation.sides
    consistent = all(is_true(a, b) for a, b in itertools.pairwise(numbers) if not isinstance(b, Quantity | Items))
    return last if consistent and (len(numbers) == 1 or all(map(_is_number, numbers))) else None


def _is_equation(node: Node) -> bool:
    return isinstance(node, Relation) and set(node.operators) <= {"=", "in"}


def _names_a_value(node: Node) -> bool:
    """A side made of letters alone, such as x, f(x), x + y, |AB|, (x, y)."""
    parts = list(walk(node))
    return any(isinstance(part, Symbol | Text) for part in parts) and not any(
        isinstance(part, Number) for part in parts
    )


def _is_number(node: Node) -> bool:
    return not any(isinstance(part, Symbol | Text | Relation) for part in walk(node))


def _same_relations(gold: Relation, answer: Relation) -> bool:
    """One by one after chains are split: an equation up to a factor, an inequality up to a positive one."""
    if "in" in gold.operators or "in" in answer.operators:
        return gold.operators == answer.operators and all(map(equivalent, gold.sides, answer.sides))
    left, right = _links(gold), _links(answer)
    if len(left) != len(right):
        return False
    if len(left) == 1:
        return _same_link(left[0], right[0])
    return all(any(_same_link(a, b) for b in right) for a in left)


def _links(relation: Relation) -> list[Relation]:
    pairs = itertools.pairwise(relation.sides)
    return [Relation((operator,), pair) for operator, pair in zip(relation.operators, pairs, strict=True)]


def _same_link(gold: Relation, answer: Relation) -> bool:
    [operator], [other] = gold.operators, answer.operators
    if other != operator:
        answer, other = Relation((_FLIPPED[other],), answer.sides[::-1]), _FLIPPED[other]
    if other != operator:
        return False
    if all(map(equivalent, gold.sides, answer.sides)):
        return True
    if not all(isinstance(side, _FORMULAS) for side in (*gold.sides, *answer.sides)):
        return False
    differences = [Call("add", (side[0], Call("neg", (side[1],)))) for side in (gold.sides, answer.sides)]
    return proportional(*differences, positive=operator not in ("=", "!="))


# ---------------------------------------------------------------- intervals and unions


def _same_region(gold: Node, answer: Node) -> bool:
    pieces = [_pieces(side, other) for side, other in ((gold, answer), (answer, gold))]
    if None in pieces or max(map(len, pieces)) > MAX_ITEMS:
        return False
    return _in_any_order(*pieces, same=_same_piece)


def _same_piece(gold: Node, answer: Node) -> bool:
    if not (isinstance(gold, Interval) and isinstance(answer, Interval)):
        return isinstance(gold, Interval) == isinstance(answer, Interval) and equivalent(gold, answer)
    ends = (gold.low_closed, gold.high_closed) == (answer.low_closed, answer.high_closed)
    return ends and equivalent(gold.low, answer.low) and equivalent(gold.high, answer.high)


def _pieces(node: Node, other: Node) -> list[Node] | None:
    """The intervals and sets that a region is made of; a pair in round brackets is an open interval here."""
    if _is_union(node):
        nested = [_pieces(item, node) for item in node.items]
        return None if None in nested else [piece for pieces in nested for piece in pieces]
    if isinstance(node, Items) and node.kind == "list":
        return [piece for item in node.items for piece in (_pieces(item, other) or [item])]
    if isinstance(node, Items) and node.kind == "tuple" and len(node.items) == 2:
        return [Interval(*node.items, False, False)]
    if isinstance(node, Relation):
        region = _solution(node)
        return None if region is None else [region]
    return [node] if isinstance(node, Interval | Items) else None


def _solution(relation: Relation) -> Node | None:
    """The interval that an inequality in one symbol describes: `x < 3`, `0 < x <= 5`; None for others."""
    operators, sides = relation.operators, relation.sides
    if operators[0] in (">", ">="):
        operators, sides = tuple(_FLIPPED.get(op, op) for op in reversed(operators)), sides[::-1]
    if not set(operators) <= {"<", "<="}:
        return None
    closed = [operator == "<=" for operator in operators]
    match sides:
        case (Symbol(), bound) if _is_number(bound):
            return Interval(Call("neg", (INFINITY,)), bound, False, closed[0])
        case (bound, Symbol()) if _is_number(bound):
            return Interval(bound, INFINITY, closed[0], False)
        case (low, Symbol(), high) if _is_number(low) and _is_number(high):
            return Interval(low, high, closed[0], closed[1])
    return None


def _is_union(node: Node) -> bool:
    return isinstance(node, Items) and node.kind == "union"


def _is_call(node: Node, name: str) -> bool:
    return isinstance(node, Call) and node.name == name
