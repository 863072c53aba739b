"""Exact values of trees at rational points, where they have them, under a limit on the size of numbers."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from pods_jax.rewards.grammar.matrices import NotSquare, determinant, rank
from pods_jax.rewards.grammar.nodes import Call, Matrix, Node, Number, Symbol

MAX_BITS = 50_000
MAX_FACTORIAL = 3_000
MAX_ROOT = 64
MAX_TERMS = 1_000
MAX_FALLING = 100


class Inexact(Exception):
    """The value is not rational, or this module cannot tell."""


class TooLarge(Exception):
    """A number would outgrow its limit, so that the value stays unknown."""


class Undefined(Exception):
    """There is no value here, such as 1/0."""


def exact_value(node: Node, point: Mapping[str, Fraction]) -> Fraction:
    """The value with the symbols replaced by the point's coordinates.

    Raises:
      Inexact, TooLarge, Undefined: see there.
    """
    match node:
        case Number(value):
            return _limited(value)
        case Symbol(name):
            return point[name]
        case Call(("sum" | "prod") as name, (body, Symbol(index), low, high)):
            return _folded(name, body, index, (exact_value(low, point), exact_value(high, point)), point)
        case Call(("det" | "rank") as name, (Matrix(rows),)):
            return _matrix_value(name, [[exact_value(entry, point) for entry in row] for row in rows])
        case Call("function", (Symbol(name), *args)):
            return unknown_function(name, [_written(exact_value(arg, point)) for arg in args])
        case Call(name, args) if name in _OPERATIONS:
            return _limited(_OPERATIONS[name](*(exact_value(arg, point) for arg in args)))
    raise Inexact


def _matrix_value(name: str, rows: Sequence[Sequence[Fraction]]) -> Fraction:
    try:
        return _limited(determinant(rows)) if name == "det" else Fraction(rank(rows))
    except NotSquare as error:
        raise Undefined from error


def unknown_function(name: str, arguments: Sequence[str]) -> Fraction:
    """A value between 1 and 2 for a function of which nothing is known: by chance, but the same for equal arguments."""
    digest = hashlib.blake2b(repr((name, *arguments)).encode(), digest_size=8).digest()
    return 1 + Fraction(int.from_bytes(digest), 1 << 64)


def _written(value: Fraction) -> str:
    """A fraction in hexadecimal digits; Python limits the decimal ones of a number."""
    return f"{value.numerator:x}/{value.denominator:x}"


def _folded(
    name: str, body: Node, index: str, ends: tuple[Fraction, Fraction], point: Mapping[str, Fraction]
) -> Fraction:
    """A finite sum or product."""
    low, high = ends
    if low.denominator > 1 or high.denominator > 1:
        raise Undefined
    if high - low >= MAX_TERMS:
        raise TooLarge
    total = Fraction(name == "prod")
    for number in range(int(low), int(high) + 1):
        value = exact_value(body, {**point, index: Fraction(number)})
        total = _limited(total + value if name == "sum" else total * value)
    return total


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _limited(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise TooLarge
    return value


def _divide(a: Fraction, b: Fraction) -> Fraction:
    if not b:
        raise Undefined
    return a / b


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if not base and exponent <= 0:
        raise Undefined
    if exponent.denominator > 1:
        base, exponent = _root(base, Fraction(exponent.denominator)), Fraction(exponent.numerator)
    if abs(exponent) * _bits(base) > 2 * MAX_BITS and abs(base) != 1:
        raise TooLarge
    if abs(base) == 1:
        return base if exponent.numerator % 2 else base * base
    return base ** int(exponent)


def _root(value: Fraction, degree: Fraction) -> Fraction:
    """A rational root; a negative number has roots of odd degree only, and only as a root, not as a power."""
    if degree.denominator > 1 or not 1 <= degree <= MAX_ROOT or value < 0:
        raise Inexact
    return Fraction(_whole_root(value.numerator, int(degree)), _whole_root(value.denominator, int(degree)))


def _odd_root(value: Fraction, degree: Fraction) -> Fraction:
    return -_root(-value, degree) if value < 0 and degree.numerator % 2 else _root(value, degree)


def _whole_root(value: int, degree: int) -> int:
    root = _newton(value, degree) if value and degree > 2 else math.isqrt(value) if degree == 2 else value
    if root**degree != value:
        raise Inexact
    return root


def _newton(value: int, degree: int) -> int:
    """The floor of the root: Newton's iteration from above, which falls until it is there."""
    root = 1 << -(-value.bit_length() // degree)
    while True:
        lower = ((degree - 1) * root + value // root ** (degree - 1)) // degree
        if lower >= root:
            return root
        root = lower


def _whole(value: Fraction, limit: int = MAX_FACTORIAL) -> int:
    if value.denominator > 1 or value < 0:
        raise Inexact
    if value > limit:
        raise TooLarge
    return int(value)


def _whole_numbers(function: Callable[..., int]) -> Callable[..., Fraction]:
    return lambda *values: Fraction(function(*(_whole(value, 1 << 200) for value in values)))


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    """Also for n between whole numbers, as n (n-1) .. (n-k+1) / k!."""
    count = _whole(k)
    if n.denominator == 1 and n >= 0:
        return Fraction(math.comb(_whole(n), count))
    if count > MAX_FALLING:
        raise TooLarge
    return Fraction(math.prod((n - i for i in range(count)), start=Fraction(1))) / math.factorial(count)


def _logarithm(value: Fraction, base: Fraction = Fraction(10)) -> Fraction:
    """A whole logarithm of a power of the base."""
    if value <= 0 or base <= 1:
        raise Inexact
    for sign, target in ((1, value), (-1, 1 / value)):
        guess = round(math.log(target.numerator, base) - math.log(target.denominator, base)) if _bits(base) < 900 else 0
        if 0 <= guess <= MAX_FACTORIAL and base**guess == target:
            return Fraction(sign * guess)
    raise Inexact


_OPERATIONS: Mapping[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "neg": lambda a: -a,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "pow": _power,
    "root": _odd_root,
    "abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "percent": lambda a: a / 100,
    "radian": lambda a: a,
    "factorial": lambda n: Fraction(math.factorial(_whole(n))),
    "double factorial": lambda n: Fraction(math.prod(range(_whole(n), 0, -2))),
    "binom": _binomial,
    "log": _logarithm,
    "gcd": _whole_numbers(math.gcd),
    "lcm": _whole_numbers(math.lcm),
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
}
