"""Whether two formulas are the same function: exactly where they are rational, else numerically, at several points."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from pods_jax.rewards.grammar.nodes import IMAGINARY, Node, symbols, walk
from pods_jax.rewards.grammar.numeric import Unknown, close, evaluate, values_close
from pods_jax.rewards.grammar.rationals import Inexact, TooLarge, Undefined, exact_value

# Coordinates without a pattern, of both signs, near 0 and 1 (where powers stay small) and far from them.
_COORDINATES = tuple(
    Fraction(*pair)
    for pair in (
        (17, 13), (5, 11), (29, 12), (83, 97), (71, 19), (7, 31), (157, 11), (-19, 23), (-37, 15), (-113, 17), (41, 53),
        (-3, 37), (1009, 47),
    )
)  # fmt: skip
_NUM_POINTS = 9
_ENOUGH_POINTS = 3
MAX_SYMBOLS = 12


def same_value(left: Node, right: Node) -> bool:
    """Whether two formulas agree wherever both are defined on the real line, at the points that are tried.

    Formulas with an imaginary unit, or defined at too few real points, are compared as complex functions (principal
    branches). What cannot be evaluated within the limits is not equal.
    """
    names = symbols(left, right)
    points = list(_points(names))
    has_imaginary = any(IMAGINARY in walk(node) for node in (left, right))
    for complex_numbers in (True,) if has_imaginary else (False, True):
        agreed = 0
        for point in points:
            try:
                if not _same_at(left, right, point, complex_numbers):
                    return False
            except Undefined:
                continue
            except (TooLarge, Unknown):
                return False
            agreed += 1
        if agreed >= min(_ENOUGH_POINTS, len(points)):
            return True
    return False


def proportional(left: Node, right: Node, *, positive: bool) -> bool:
    """Whether left = c * right for a constant c that is not 0 (and, if `positive`, above 0), by the same means."""
    complex_numbers = any(IMAGINARY in walk(node) for node in (left, right))
    if positive and complex_numbers:
        return False  # there is no order
    first, agreed = None, 0
    names = symbols(left, right)
    for point in _points(names):
        try:
            (a, b), scale, digits = evaluate((left, right), point, complex_numbers)
        except Undefined:
            continue
        except (TooLarge, Unknown):
            return False
        if not a or not b:
            if bool(a) != bool(b):
                return False
            continue
        first = first or (a, b)
        if not close(a * first[1], first[0] * b, scale, digits) or (positive and a / b < 0):
            return False
        agreed += 1
    return agreed >= min(_ENOUGH_POINTS, _NUM_POINTS if names else 1)


def is_true(left: Node, right: Node) -> bool:
    """Whether an equation between two numbers holds."""
    return not symbols(left, right) and same_value(left, right)


def _points(names: list[str]) -> Iterator[Mapping[str, Fraction]]:
    """The first three points are positive in all coordinates, as long as there are few."""
    if len(names) > MAX_SYMBOLS:
        return
    for number in range(_NUM_POINTS if names else 1):
        yield {
            name: _COORDINATES[(number + 5 * place) % len(_COORDINATES) if number > 2 else (number + place) % 7]
            for place, name in enumerate(names)
        }


def _same_at(left: Node, right: Node, point: Mapping[str, Fraction], complex_numbers: bool) -> bool:
    try:
        return exact_value(left, point) == exact_value(right, point)
    except Inexact:
        return values_close(left, right, point, complex_numbers)
