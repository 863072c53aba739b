"""Letters with brackets after them: `f(x)` is a value of a function, `n(n+1)` a product. Both sides together tell.

The parser leaves it open: "apply" holds the letter, its arguments, and what is done with the brackets (`(..)^2`,
`(..)!`) as a tree around `HOLE`. `resolved` decides, for the formulas that are compared.
"""

from collections.abc import Sequence
from fractions import Fraction

from pods_jax.rewards.grammar.nodes import Call, Items, Node, Number, Symbol, children, walk
from pods_jax.rewards.grammar.words import listed

HOLE = Symbol("#")

_ONLY_FUNCTIONS = listed("f g f^-1 g^-1")
_FUNCTION_LETTERS = listed("f g h F G H u U phi varphi psi Phi Psi delta Gamma zeta f^-1 g^-1 h^-1")
_LITERALS = frozenset({"neg", "div", "inf"})


def applied(letter: Symbol, arguments: Sequence[Node], outer: Node) -> Node:
    """A letter with brackets after it."""
    return Call("apply", (letter, Items("tuple", tuple(arguments)), outer))


def is_applied(node: Node) -> bool:
    """Whether this is a letter with brackets after it, and nothing done with them."""
    return isinstance(node, Call) and node.name == "apply" and node.args[2] == HOLE


def resolved(*formulas: Node) -> tuple[Node, ...]:
    """The formulas with every application read as a product or as a value of an unknown function ("function").

    A letter that also occurs by itself in one of them is a variable. Else `f`, `g`, `h` and the like are functions, and
    so is any letter whose argument is a number (`I(3)`); the letter times 0 is never meant. `f`, `g` and a letter
    before a number are read as their own formula has them, since `2f` is no way to write `f(2)`.
    """
    if not any(isinstance(node, Call) and node.name == "apply" for formula in formulas for node in walk(formula)):
        return formulas
    own = [_variables(formula) for formula in formulas]
    shared = set().union(*own)
    return tuple(_resolved(formula, variables, shared) for formula, variables in zip(formulas, own, strict=True))


def _variables(node: Node) -> set[str]:
    """The letters that occur other than before brackets."""
    if isinstance(node, Symbol):
        return {node.name}
    inside = children(node)[1:] if isinstance(node, Call) and node.name == "apply" else children(node)
    return {name for child in inside for name in _variables(child)}


def _resolved(node: Node, own: set[str], shared: set[str]) -> Node:
    match node:
        case Call("apply", (Symbol(name) as letter, Items(_, arguments), outer)):
            arguments = tuple(_resolved(argument, own, shared) for argument in arguments)
            outer = _resolved(outer, own, shared)
            if _is_function(name, arguments, own, shared):
                return _filled(outer, Call("function", (letter, *arguments)))
            return Call("mul", (letter, _filled(outer, arguments[0])))
        case Call("div", (above, Call("apply") as below)):
            read = _resolved(below, own, shared)
            above = _resolved(above, own, shared)
            if isinstance(read, Call) and read.name == "mul" and read.args[0] == below.args[0]:  # a/b(c) is (a/b) c
                return Call("mul", (Call("div", (above, read.args[0])), read.args[1]))
            return Call("div", (above, read))
        case Call(name, args):
            return Call(name, tuple(_resolved(arg, own, shared) for arg in args))
    return node


def _is_function(name: str, arguments: Sequence[Node], own: set[str], shared: set[str]) -> bool:
    if len(arguments) > 1 or arguments[0] == Number(Fraction(0)):
        return True
    letter = name.partition("_")[0].rstrip("'")
    certain = letter in _ONLY_FUNCTIONS or _is_literal(arguments[0])
    if name in (own if certain else shared):
        return False
    return certain or letter in _FUNCTION_LETTERS or "'" in name


def _is_literal(node: Node) -> bool:
    """A number as written: digits, a sign, a fraction."""
    if isinstance(node, Number):
        return True
    return isinstance(node, Call) and node.name in _LITERALS and all(map(_is_literal, node.args))


def _filled(outer: Node, inside: Node) -> Node:
    if outer == HOLE:
        return inside
    return Call(outer.name, tuple(_filled(arg, inside) for arg in outer.args)) if isinstance(outer, Call) else outer
