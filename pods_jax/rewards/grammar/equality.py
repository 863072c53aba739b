"""Equality of two parsed answers. docs/rewards.md lists the conventions."""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

from pods_jax.rewards.grammar.nodes import (
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
)
from pods_jax.rewards.grammar.regions import REGIONS, same_region
from pods_jax.rewards.grammar.relations import (
    assigned,
    exact_and_rounded,
    is_equation,
    is_inequality,
    same_link,
    split_chain,
    without_domains,
)
from pods_jax.rewards.grammar.signs import with_both_signs
from pods_jax.rewards.grammar.values import same_value

MAX_ITEMS = 40
MAX_BASE_DIGITS = 1_000

_ZERO = Number(Fraction(0))
FORMULAS = Number | Symbol | Call


def equivalent(gold: Node, answer: Node) -> bool:
    """Whether an answer says what the gold says. Not symmetric: what the gold leaves out the answer may add or omit."""
    if gold == answer:
        return True
    if any(isinstance(side, Relation) and "approx" in side.operators for side in (gold, answer)):
        return _same_approximation(gold, answer)
    sides = without_domains(gold, answer)
    if sides is None:
        return False
    gold, answer = map(with_both_signs, sides)
    if isinstance(gold, Items) != isinstance(answer, Items):
        gold, answer = _unrepeated(gold), _unrepeated(answer)
    if _is_region(gold) or _is_region(answer):
        return same_region(gold, answer, equivalent)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _same_relation(gold, answer)
    if isinstance(gold, Items) or isinstance(answer, Items):
        return _same_items(gold, answer)
    return _same_single(gold, answer)


def _is_region(node: Node) -> bool:
    return isinstance(node, Interval) or (isinstance(node, Items) and node.kind in REGIONS)


def _same_approximation(gold: Node, answer: Node) -> bool:
    r"""`2/3 \approx 0.67` is 2/3, `x \approx 0.67` is 0.67; a gold of the first form is both."""
    expected, stated = exact_and_rounded(gold), exact_and_rounded(answer)
    return bool(stated) and any(equivalent(value, stated[0]) for value in expected)


# ---------------------------------------------------------------- one value


def _same_single(gold: Node, answer: Node) -> bool:
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _same_matrix(gold, answer)
    if isinstance(gold, Quantity) or isinstance(answer, Quantity):
        return _same_quantity(gold, answer)
    if isinstance(gold, BaseNumber) or isinstance(answer, BaseNumber):
        return _same_digits(gold, answer)
    if not (isinstance(gold, FORMULAS) and isinstance(answer, FORMULAS)):
        return _letters(gold) == _letters(answer) is not None
    for unit, rule in (("degree", _same_angle), ("percent", _same_percentage)):
        if _has_unit(gold, unit) or _has_unit(answer, unit):
            return rule(gold, answer)
    if _is_ratio(gold) or _is_ratio(answer):
        return _same_ratio(gold, answer)
    return same_value(gold, answer)


def _same_quantity(gold: Node, answer: Node) -> bool:
    """A unit may be on one side only; two units must be the same."""
    if isinstance(gold, Quantity) and isinstance(answer, Quantity) and not _same_unit(gold.unit, answer.unit):
        return False
    return equivalent(*(side.value if isinstance(side, Quantity) else side for side in (gold, answer)))


def _same_unit(gold: str, answer: str) -> bool:
    """Written alike, or with fewer words of description ("right triangle", "triangle")."""
    return gold == answer or gold.endswith(f" {answer}") or answer.endswith(f" {gold}")


def _same_angle(gold: Node, answer: Node) -> bool:
    """Equality in degrees, unless a side says radians; where only one side has the sign, it may stand for pi/180."""
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
    """Equal digits in equal bases. Only an answer may leave the base out, for the problem states it; but ten is ten."""
    if not isinstance(gold, BaseNumber):
        return answer.base == 10 and equivalent(gold, Number(Fraction(answer.digits)))
    if isinstance(answer, BaseNumber):
        return gold == answer
    whole = isinstance(answer, Number) and answer.value.denominator == 1
    return whole and answer.value < 10**MAX_BASE_DIGITS and str(answer.value) == gold.digits


def _letters(node: Node) -> str | None:
    """The letters in which a word or a product of letters is written; None for all else."""
    match node:
        case Text(words):
            return "".join(filter(str.isalnum, words.lower())) or words
        case Symbol(name) | Call(("e" | "i") as name):
            return name.lower()
        case Call("mul", (left, right)):
            parts = (_letters(left), _letters(right))
            return None if None in parts else "".join(parts)
    return None


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
    if "cases" in kinds and len(kinds) > 1:
        return False
    left, right = _elements(gold), _elements(answer)
    if max(len(left), len(right)) > MAX_ITEMS:
        return False
    if "tuple" in kinds or (kinds == {"list"} and any(isinstance(item, Text) for item in left)):
        return _in_order(left, right)  # words answer one question each
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


# ---------------------------------------------------------------- relations


def _same_relation(gold: Node, answer: Node) -> bool:
    if isinstance(gold, Relation) and isinstance(answer, Relation) and is_equation(gold) == is_equation(answer):
        return _same_relations(gold, answer)
    relation, other = (gold, answer) if is_equation(gold) or not isinstance(answer, Relation) else (answer, gold)
    value = assigned(relation)
    if value is not None:
        return equivalent(value, answer) if relation is gold else equivalent(gold, value)
    return is_inequality(relation) and not isinstance(other, FORMULAS) and same_region(gold, answer, equivalent)


def _same_relations(gold: Relation, answer: Relation) -> bool:
    """One by one after chains are split: an equation up to a factor, an inequality up to a positive one."""
    if "in" in gold.operators or "in" in answer.operators:
        return gold.operators == answer.operators and all(map(equivalent, gold.sides, answer.sides))
    left, right = split_chain(gold), split_chain(answer)
    if len(left) != len(right):
        return False
    if len(left) == 1:
        return same_link(left[0], right[0], equivalent)
    return all(any(same_link(a, b, equivalent) for b in right) for a in left)


def _is_call(node: Node, name: str) -> bool:
    return isinstance(node, Call) and node.name == name
