"""The last resort, by sympy: whether two equations between polynomials have the same solutions.

Points cannot decide it where the equations differ by a factor that is not constant. Narrow: sums, products, quotients
and small whole powers in few letters, of few terms. sympy is imported on the first use, which workers make; it is given
numbers and symbols, and no text.
"""

from typing import Any

from pods_jax.rewards.grammar.nodes import Call, Node, Number, Symbol, symbols, walk

MAX_NODES = 80
MAX_SYMBOLS = 3
MAX_DEGREE = 6
MAX_BITS = 200
MAX_TERMS = 60


class _Outside(Exception):
    """Beyond what is tried here."""


def same_zeros(left: Node, right: Node) -> bool:
    """Whether the numerators of two rational functions have the same irreducible factors, up to constants."""
    names = symbols(left, right)
    if symbols(left) != symbols(right) or not 1 <= len(names) <= MAX_SYMBOLS:
        return False
    if any(sum(1 for _ in walk(node)) > MAX_NODES for node in (left, right)) or not all(
        map(_is_rational, (left, right))
    ):
        return False
    try:
        factors = [_factors(node, names) for node in (left, right)]
    except _Outside:
        return False
    return bool(factors[0]) and factors[0] == factors[1]


def _is_rational(node: Node) -> bool:
    match node:
        case Number(value):
            return value.numerator.bit_length() + value.denominator.bit_length() <= MAX_BITS
        case Symbol():
            return True
        case Call("pow", (base, Number(exponent))):
            return exponent.denominator == 1 and 1 <= exponent <= MAX_DEGREE and _is_rational(base)
        case Call(("add" | "mul" | "div" | "neg"), args):
            return all(map(_is_rational, args))
    return False


def _factors(node: Node, names: list[str]) -> set[Any]:
    import sympy

    letters = {name: sympy.Symbol(f"x{place}") for place, name in enumerate(names)}
    ring = sympy.QQ[tuple(letters.values())]
    field = ring.get_field()
    numerator = _value(node, {name: field.from_sympy(letter) for name, letter in letters.items()}, field).numer
    if len(numerator) > MAX_TERMS or not numerator:
        raise _Outside
    _, factors = numerator.factor_list()
    return {factor.monic() for factor, _ in factors if not factor.is_ground}


def _value(node: Node, letters: dict[str, Any], field: Any) -> Any:
    """The node's value in the field of fractions; a limit on terms after every step bounds the cost."""
    match node:
        case Number(value):
            return field.convert(value.numerator) / field.convert(value.denominator)
        case Symbol(name):
            return letters[name]
        case Call("pow", (base, Number(exponent))):
            found = _value(base, letters, field) ** int(exponent)
        case Call(name, args):
            parts = [_value(arg, letters, field) for arg in args]
            if name == "div" and not parts[1]:
                raise _Outside
            found = _OPERATIONS[name](*parts)
    if len(found.numer) + len(found.denom) > 2 * MAX_TERMS:
        raise _Outside
    return found


_OPERATIONS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
}
