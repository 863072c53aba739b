"""Values of closed forms to as many digits as it takes to compare them, by mpmath.

Numbers are compared relatively at 50 digits or more. The precision grows with the magnitudes that occur on the way, so
that neither 1 + e^-500 is taken for 1 nor the rounding noise of sin(pi) for a number.
"""

import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath

from pods_jax.rewards.grammar.nodes import Call, Node, Number, Symbol
from pods_jax.rewards.grammar.rationals import TooLarge, Undefined

DIGITS = 50
GUARD_DIGITS = 12
SMALL_EXTENT = 4
MAX_EXTENT = 400
MAX_FACTORIAL = 170
MAX_GAMMA = 20
MAX_GAMMA_DIGITS = 250

_LOG2_10 = 3.3219280948873626
_contexts = threading.local()


class Unknown(Exception):
    """An operation without a numeric rule."""


def values_close(left: Node, right: Node, point: Mapping[str, Fraction], complex_numbers: bool) -> bool:
    """Whether two trees have the same value at a point.

    Raises:
      Undefined: if one has none there (or, unless `complex_numbers`, none without leaving the real line).
      TooLarge, Unknown: if it cannot be told.
    """
    (a, b), scale, digits = evaluate((left, right), point, complex_numbers)
    return close(a, b, scale, digits)


def close(a: Any, b: Any, scale: Any, digits: int) -> bool:
    """Equality up to relative rounding; a value below the rounding of the intermediate results is 0."""
    tolerance = scale.context.mpf(10) ** (GUARD_DIGITS - digits)
    size = max(abs(a), abs(b))
    return abs(a - b) <= tolerance * size or size <= tolerance * scale


def evaluate(
    nodes: tuple[Node, ...], point: Mapping[str, Fraction], complex_numbers: bool
) -> tuple[list[Any], Any, int]:
    """The values of the trees, the largest magnitude met on the way, and the digits they are good for."""
    evaluator = _Evaluator(DIGITS, MAX_EXTENT, point, complex_numbers)
    values = [evaluator.value(node) for node in nodes]
    extent = evaluator.extent
    if extent <= SMALL_EXTENT:
        return values, evaluator.scale, DIGITS
    # Between 10^-extent and 10^extent, cancellation costs up to 2 extent digits, and as many tell numbers apart.
    evaluator = _Evaluator(DIGITS + 4 * extent, 10 * MAX_EXTENT, point, complex_numbers)  # noise is smaller now
    return [evaluator.value(node) for node in nodes], evaluator.scale, DIGITS + 2 * extent


def _context() -> Any:
    if not hasattr(_contexts, "mp"):
        _contexts.mp = mpmath.MPContext()
    return _contexts.mp


class _Evaluator:
    """extent: the largest |log10| of an intermediate result; scale: the largest magnitude of one."""

    def __init__(self, digits: int, max_extent: int, point: Mapping[str, Fraction], complex_numbers: bool):
        self.mp = _context()
        self.mp.dps = digits
        self.point, self.complex_numbers, self.max_extent = point, complex_numbers, max_extent
        self.extent, self.scale = 0, self.mp.mpf(1)

    def value(self, node: Node) -> Any:
        match node:
            case Number(number):
                return self.tracked(self.mp.mpf(number.numerator) / number.denominator)
            case Symbol(name):
                return self.mp.mpf(self.point[name].numerator) / self.point[name].denominator
            case Call("pi"):
                return +self.mp.pi
            case Call("e"):
                return +self.mp.e
            case Call("i") if self.complex_numbers:
                return self.mp.mpc(0, 1)
            case Call(name, args) if name in _OPERATIONS:
                return self.operation(_OPERATIONS[name], [self.value(arg) for arg in args])
        raise Unknown

    def operation(self, rule: Callable[..., Any], args: list[Any]) -> Any:
        try:
            value = rule(self.mp, *args)
        except (
            ValueError,
            ZeroDivisionError,
            TypeError,
        ) as error:  # poles, outside of the domain, order of complex numbers
            raise Undefined from error
        except OverflowError as error:
            raise TooLarge from error
        return self.tracked(value)

    def tracked(self, value: Any) -> Any:
        mp = self.mp
        if not mp.isfinite(value) or (isinstance(value, mp.mpc) and not self.complex_numbers):
            raise Undefined
        if value:
            self.extent = max(self.extent, int(abs(mp.mag(value)) / _LOG2_10))
            self.scale = max(self.scale, abs(value))
        if self.extent > self.max_extent:
            raise TooLarge
        return value


def _power(mp: Any, base: Any, exponent: Any) -> Any:
    if not base:
        if mp.re(exponent) <= 0:
            raise Undefined
        return base
    if abs(exponent) * max(1, abs(mp.mag(base))) > MAX_EXTENT * 4:
        raise TooLarge
    return mp.power(base, exponent)


def _root(mp: Any, value: Any, degree: Any) -> Any:
    if not mp.isint(degree) or not 1 <= degree <= 10_000:
        return _power(mp, value, 1 / degree)
    odd = int(mp.re(degree)) % 2 and isinstance(value, mp.mpf) and value < 0
    return -mp.root(-value, int(degree)) if odd else mp.root(value, int(degree))


def _exponential(mp: Any, value: Any) -> Any:
    return _power(mp, +mp.e, value)


def _logarithm(mp: Any, value: Any, base: Any = 10) -> Any:
    return mp.log(value) / mp.log(base)


def _factorial(mp: Any, value: Any) -> Any:
    """By the gamma function, so that n! is also compared at points between whole numbers."""
    return mp.factorial(_moderate(mp, value))


def _double_factorial(mp: Any, value: Any) -> Any:
    """Between whole numbers by a function with n!! = n (n-2)!!."""
    return mp.fac2(_moderate(mp, value))


def _moderate(mp: Any, value: Any) -> Any:
    """The value, if its factorial is within reach."""
    if mp.re(value) < 0:
        raise Undefined
    if abs(value) > (MAX_FACTORIAL if mp.isint(value) else MAX_GAMMA if mp.dps <= MAX_GAMMA_DIGITS else 0):
        raise TooLarge
    return value


def _binomial(mp: Any, n: Any, k: Any) -> Any:
    return _factorial(mp, n) / (_factorial(mp, k) * _factorial(mp, n - k))


def _divide(mp: Any, a: Any, b: Any) -> Any:
    return a / b


_NAMES = "sin cos tan cot sec csc sinh cosh tanh coth asin acos atan acot asec acsc asinh acosh atanh floor ceil ln"
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    name: (lambda mp, x, name=name: getattr(mp, name)(x)) for name in _NAMES.split()
} | {
    "add": lambda mp, a, b: a + b,
    "neg": lambda mp, a: -a,
    "mul": lambda mp, a, b: a * b,
    "div": _divide,
    "pow": _power,
    "root": _root,
    "exp": _exponential,
    "log": _logarithm,
    "lg": _logarithm,
    "abs": lambda mp, a: abs(a),
    "percent": lambda mp, a: a / 100,
    "radian": lambda mp, a: a,
    "binom": _binomial,
    "degree": lambda mp, a: a * mp.pi / 180,
    "factorial": _factorial,
    "double factorial": _double_factorial,
    "min": lambda mp, *values: min(values),
    "max": lambda mp, *values: max(values),
}
