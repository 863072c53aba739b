"""Values of closed forms to as many digits as it takes to compare them, by mpmath.

Numbers are compared relatively at 50 digits or more. The precision grows with the magnitudes that occur on the way, so
that neither 1 + e^-500 is taken for 1 nor the rounding noise of sin(pi) for a number.
"""

import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath

from pods_jax.rewards.grammar import calculus
from pods_jax.rewards.grammar.matrices import NotSquare, determinant
from pods_jax.rewards.grammar.nodes import Call, Matrix, Node, Number, Symbol
from pods_jax.rewards.grammar.rationals import TooLarge, Undefined, unknown_function

DIGITS = 50
GUARD_DIGITS = 12
SMALL_EXTENT = 4
MAX_EXTENT = 400
MAX_FACTORIAL = 170
MAX_GAMMA = 20
MAX_GAMMA_DIGITS = 250
ARGUMENT_DIGITS = 25

_LOG2_10 = 3.3219280948873626
_contexts = threading.local()


class Unknown(Exception):
    """An operation without a numeric rule, or without a value that can be trusted."""


class _Underflow(TooLarge):
    """A power that is nearly 0, as the ends of integrands are."""


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
    if evaluator.approximate:
        return values, evaluator.scale, calculus.TRUSTED_DIGITS + GUARD_DIGITS - min(extent, GUARD_DIGITS)
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
    """extent: the largest |log10| of an intermediate result; scale: the largest magnitude of one.

    approximate: whether a sum, an integral or a limit was taken, whose digits do not grow with the precision.
    far_out: whether the body of one is evaluated: places far out count as little as their values do.
    """

    def __init__(self, digits: int, max_extent: int, point: Mapping[str, Fraction], complex_numbers: bool):
        self.mp = _context()
        self.mp.dps = digits
        self.complex_numbers = complex_numbers
        self.max_extent = max_extent
        self.point = {name: self.mp.mpf(value.numerator) / value.denominator for name, value in point.items()}
        self.extent = 0
        self.scale = self.mp.mpf(1)
        self.approximate = self.far_out = False

    def value(self, node: Node) -> Any:
        match node:
            case Number(number):
                return self.number(number)
            case Symbol(name):
                return self.point[name]
            case Call("pi"):
                return +self.mp.pi
            case Call("e"):
                return +self.mp.e
            case Call("i") if self.complex_numbers:
                return self.mp.mpc(0, 1)
            case Call("function", (Symbol(name), *args)):
                written = [self.mp.nstr(self.value(arg), ARGUMENT_DIGITS) for arg in args]
                return self.number(unknown_function(name, written))
            case Call("det", (Matrix(rows),)):
                return self.operation(self.determinant, [[[self.value(entry) for entry in row] for row in rows]])
            case Call(name, args) if name in calculus.OPERATORS:
                self.approximate = True
                return self.tracked(self.guarded(lambda: calculus.value(self, name, args)))
            case Call(name, args) if name in _OPERATIONS:
                return self.operation(_OPERATIONS[name], [self.value(arg) for arg in args])
        raise Unknown

    def number(self, number: Fraction) -> Any:
        """Its length in digits counts as an extent, so that 1.00..01 is not 1."""
        longest = max(abs(number.numerator), number.denominator)
        digits = int(longest.bit_length() / _LOG2_10)
        if digits > self.max_extent:
            raise TooLarge
        self.extent = max(self.extent, digits if digits > SMALL_EXTENT else 0)
        return self.tracked(self.mp.mpf(number.numerator) / number.denominator)

    def determinant(self, mp: Any, rows: list[list[Any]]) -> Any:
        return determinant(rows)

    def bind(self, name: str, value: Any) -> None:
        """Gives a bound variable a value."""
        self.point[name] = value

    def operation(self, rule: Callable[..., Any], args: list[Any]) -> Any:
        if rule in _EXPONENTIAL:  # tanh 70 differs from 1 by e^-140
            self.tracked(self.guarded(lambda: _exponential(self.mp, abs(args[0]))))
        return self.tracked(self.guarded(lambda: rule(self.mp, *args)))

    def guarded(self, rule: Callable[[], Any]) -> Any:
        """The rule's value; poles, values outside of the domain and orders of complex numbers are undefined."""
        try:
            return rule()
        except _Underflow:
            if self.far_out:
                return self.mp.mpf(0)
            raise
        except (Undefined, TooLarge, Unknown):
            raise
        except (OverflowError, MemoryError, RecursionError) as error:
            raise TooLarge from error
        except calculus.Unreliable as error:
            raise Unknown from error
        except (ArithmeticError, ValueError, TypeError, NotSquare, AttributeError, NotImplementedError) as error:
            raise Undefined from error

    def tracked(self, value: Any) -> Any:
        mp = self.mp
        if not mp.isfinite(value) or (isinstance(value, mp.mpc) and not self.complex_numbers):
            raise Undefined
        if value:
            self.extent = max(self.extent, int(abs(mp.mag(value)) / _LOG2_10))
            self.scale = max(self.scale, abs(value))
        if self.extent > self.max_extent and not self.far_out:
            raise TooLarge
        return value


def _power(mp: Any, base: Any, exponent: Any) -> Any:
    if not base:
        if mp.re(exponent) <= 0:
            raise Undefined
        return base
    if abs(exponent) * max(1, abs(mp.mag(base))) > MAX_EXTENT * 4:
        raise (_Underflow if mp.re(exponent) * mp.mag(base) < 0 else TooLarge)
    return mp.power(base, exponent)


def _root(mp: Any, value: Any, degree: Any) -> Any:
    if not mp.isint(degree) or not 1 <= mp.re(degree) <= 10_000:
        return _power(mp, value, 1 / degree)
    odd = int(mp.re(degree)) % 2 and isinstance(value, mp.mpf) and value < 0
    return -mp.root(-value, int(mp.re(degree))) if odd else mp.root(value, int(mp.re(degree)))


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
    if mp.isint(k) and 0 <= mp.re(k) <= MAX_GAMMA:
        count = int(mp.re(k))
        return mp.fprod([n - i for i in range(count)]) / mp.factorial(count)
    return _factorial(mp, n) / (_factorial(mp, k) * _factorial(mp, n - k))


def _divide(mp: Any, a: Any, b: Any) -> Any:
    return a / b


_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth sech csch asin acos atan acot asec acsc asinh acosh atanh "
    "floor ceil ln"
)
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
_EXPONENTIAL = frozenset(_OPERATIONS[name] for name in ("sinh", "cosh", "tanh", "coth", "sech", "csch"))
