"""Whether two formulas are the same function: exactly where they are rational, else numerically, at several points."""

from fractions import Fraction

from pods_jax.rewards.grammar.applications import resolved
from pods_jax.rewards.grammar.calculus import start_budget
from pods_jax.rewards.grammar.nodes import IMAGINARY, Node, symbols, walk
from pods_jax.rewards.grammar.numeric import Unknown, close, evaluate, values_close
from pods_jax.rewards.grammar.points import Point, has_corners, points
from pods_jax.rewards.grammar.rationals import Inexact, TooLarge, Undefined, exact_value

ENOUGH_POINTS = 4


def same_value(left: Node, right: Node) -> bool:
    """Whether two formulas agree wherever both are defined on the real line, at the points that are tried.

    Formulas with an imaginary unit, or defined at too few real points, are compared as complex functions (principal
    branches). At least `ENOUGH_POINTS` (one, for numbers) must have a value on both sides: what cannot be evaluated is
    not equal. Where a formula has corners, such as |x|, both must be defined at the same points.
    """
    start_budget()
    left, right = resolved(left, right)
    has_imaginary = any(IMAGINARY in walk(node) for node in (left, right))
    for complex_numbers in (True,) if has_imaginary else (False, True):
        agreement = _agreement(left, right, complex_numbers)
        if agreement is not None:
            return agreement
    return False


def _agreement(left: Node, right: Node, complex_numbers: bool) -> bool | None:
    """False at the first point where they differ; None if there are too few at which both have values."""
    agreed = 0
    needed = ENOUGH_POINTS if symbols(left, right) else 1
    same_domain = has_corners(left, right)
    for point in points(left, right):
        try:
            if not _same_at(left, right, point, complex_numbers):
                return False
            agreed += 1
        except Undefined:
            if same_domain and is_defined(left, point, complex_numbers) != is_defined(right, point, complex_numbers):
                return False
        except (TooLarge, Unknown):
            if needed == 1:
                return False
    return True if agreed >= needed else None


def proportional(left: Node, right: Node, *, positive: bool) -> bool:
    """Whether left = c * right for a constant c that is not 0 (and, if `positive`, above 0), by the same means."""
    start_budget()
    left, right = resolved(left, right)
    complex_numbers = any(IMAGINARY in walk(node) for node in (left, right))
    if positive and complex_numbers:
        return False  # there is no order
    first = None
    agreed = 0
    for point in points(left, right):
        try:
            (a, b), scale, digits = evaluate((left, right), point, complex_numbers)
        except (Undefined, TooLarge, Unknown):
            continue
        if not a or not b:
            if bool(a) != bool(b):
                return False
            continue
        first = first or (a, b)
        if not close(a * first[1], first[0] * b, scale, digits) or (positive and a / b < 0):
            return False
        agreed += 1
    return agreed >= (ENOUGH_POINTS if symbols(left, right) else 1)


def is_true(left: Node, right: Node) -> bool:
    """Whether an equation between two numbers holds."""
    return not symbols(left, right) and same_value(left, right)


def real_value(node: Node) -> Fraction | None:
    """A number's value, exact or to 40 digits, to be ordered by; None for what is no real number."""
    if symbols(node):
        return None
    try:
        return exact_value(node, {})
    except (TooLarge, Undefined):
        return None
    except Inexact:
        return _rounded(node)


def _rounded(node: Node) -> Fraction | None:
    start_budget()
    try:
        [value], _, _ = evaluate((node,), {}, False)
    except (TooLarge, Undefined, Unknown):
        return None
    sign, mantissa, exponent, _ = value._mpf_
    return Fraction((-1) ** sign * int(mantissa)) * Fraction(2) ** exponent


def is_defined(node: Node, point: Point, complex_numbers: bool) -> bool:
    """Whether a formula has a value at a point."""
    try:
        exact_value(node, point)
    except Inexact:
        try:
            evaluate((node,), point, complex_numbers)
        except (Undefined, TooLarge, Unknown):
            return False
    except (Undefined, TooLarge):
        return False
    return True


def _same_at(left: Node, right: Node, point: Point, complex_numbers: bool) -> bool:
    try:
        return exact_value(left, point) == exact_value(right, point)
    except Inexact:
        return values_close(left, right, point, complex_numbers)
