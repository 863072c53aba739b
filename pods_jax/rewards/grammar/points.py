"""Points at which formulas are compared: near 0 and 1, of both signs, far out, and beyond every number they contain."""

import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from pods_jax.rewards.grammar.nodes import Call, Node, Symbol, children, symbols, walk
from pods_jax.rewards.grammar.rationals import Inexact, TooLarge, Undefined, exact_value

Point = Mapping[str, Fraction]

MAX_CONSTANTS = 8

# From low to high; whether signs vary; how many points. Powers stay small at the first.
_RANGES = (
    (Fraction(1, 20), Fraction(19, 20), True, 3),
    (Fraction(1, 5), Fraction(3), False, 4),
    (Fraction(1), Fraction(15), True, 5),
    (Fraction(20), Fraction(400), True, 2),
    (Fraction(500), Fraction(10_000), False, 2),
    (Fraction(500), Fraction(10_000), True, 2),
)
_WHOLE_FROM_ON = frozenset({"factorial", "double factorial", "binom", "sum", "prod"})
_SLOW = frozenset({"int", "lim", "lim+", "lim-"})
_CORNERS = frozenset({"abs", "floor", "ceil", "min", "max"})
_NUM_WHOLE = 6
_PRIMES = (911, 919, 929, 937, 941, 947, 953, 967, 971, 977, 983, 991, 997)


def has_corners(*formulas: Node) -> bool:
    """Whether a formula follows different rules in different places."""
    return any(isinstance(node, Call) and node.name in _CORNERS for formula in formulas for node in walk(formula))


def points(*formulas: Node) -> Iterator[Point]:
    """One point without coordinates if the formulas have no symbols; else some 20, the same in every run."""
    names = symbols(*formulas)
    if not names:
        yield {}
        return
    calls = {node.name for formula in formulas for node in walk(formula) if isinstance(node, Call)}
    slow = not calls.isdisjoint(_SLOW)
    for low, high, signed, count in _RANGES[:2] if slow else _RANGES:
        for number in range(min(count, 3) if slow else count):
            yield _point(names, low, high, signed, f"{low} {signed} {number}")
    if not calls.isdisjoint(_WHOLE_FROM_ON):
        yield from _whole_points(names)
    constants = _constants(formulas)
    largest = max((abs(value) for value in constants), default=Fraction(0))
    if largest > 100:
        for signed in (False, True):
            yield _point(names, 2 * largest, 5 * largest, signed, f"beyond {signed}")
    if not calls.isdisjoint(_CORNERS):
        yield from _corner_points(names, constants)


def _whole_points(names: Sequence[str]) -> Iterator[Point]:
    """Whole numbers above 3, larger for later names in half of them, smaller in the others."""
    for number in range(_NUM_WHOLE):
        chance = random.Random(number)
        values = sorted(chance.randint(4, 30) for _ in names)
        yield dict(zip(names, map(Fraction, values if number % 2 else values[::-1]), strict=True))


def _corner_points(names: Sequence[str], constants: Sequence[Fraction]) -> Iterator[Point]:
    """On both sides of each number in the formulas, and between it and 0."""
    for value in constants:
        size = abs(value) or Fraction(1, 100)
        for low, high in ((size / 2, size * 9 / 10), (size * 11 / 10, size * 3 / 2)):
            yield _point(names, low, high, False, f"corner {value} {low}")
            yield {name: -x for name, x in _point(names, low, high, False, f"corner {value} {high}").items()}


def _constants(formulas: Sequence[Node]) -> list[Fraction]:
    """The rational values of the largest parts without symbols, without repetition; so many at most."""
    found: dict[Fraction, None] = {}
    left = list(formulas)
    while left and len(found) < MAX_CONSTANTS:
        node = left.pop()
        if any(isinstance(inside, Symbol) for inside in walk(node)):
            left += children(node)
            continue
        try:
            value = exact_value(node, {})
        except (Inexact, TooLarge, Undefined):
            left += children(node)
            continue
        if value.numerator.bit_length() < 200 and value.denominator.bit_length() < 200:
            found[value] = None
    return list(found)


def _point(names: Sequence[str], low: Fraction, high: Fraction, signed: bool, seed: str) -> Point:
    """Signs alternate by name where they vary, or all are negative."""
    all_negative = signed and seed.endswith("0")
    return {
        name: _coordinate(low, high, f"{seed} {place}")
        * (-1 if all_negative or (signed and (place + len(seed)) % 2) else 1)
        for place, name in enumerate(names)
    }


@functools.lru_cache(maxsize=4096)
def _coordinate(low: Fraction, high: Fraction, seed: str) -> Fraction:
    """A number between two others, without a pattern."""
    chance = random.Random(seed)
    below = chance.choice(_PRIMES)
    return low + (high - low) * Fraction(chance.randint(1, below - 1), below)
