"""Environment "calculator": a tool that works out the expression before an equals sign."""

import ast
import dataclasses
import operator
import re
from fractions import Fraction

from pods_jax.data.examples import Example
from pods_jax.environments.environment import register

MAX_CHARS = 100
_EXPRESSION = re.compile(r"[-+( ]*\.?[0-9][-+*/().0-9 ]*\Z")
_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg}


@register("calculator")
@dataclasses.dataclass
class Calculator:
    """Answers a turn with the value of the expression before its last "="; a turn without "=" is the last.

    What the policy writes after the sign has no part in it: "12 + 30 = 40" is answered with 42.

    Attributes:
      call_reward: reward of a turn whose expression has a value.
    """

    call_reward: float = 0.0

    def reset(self, example: Example) -> None:
        """The example has no part in it."""

    def step(self, text: str) -> tuple[str, float, bool]:
        before, called, _ = text.rpartition("=")
        if not called:
            return "", 0.0, True
        expression = _EXPRESSION.search(before[-MAX_CHARS - 1 :])
        value = expression and calculated(expression[0])
        return ("error", 0.0, False) if value is None else (written(value), self.call_reward, False)


def calculated(expression: str) -> Fraction | None:
    """The value of an expression of digits, + - * / and parentheses, which is not run.

    None if it has none, or is longer than `MAX_CHARS`.
    """
    if len(expression) > MAX_CHARS:
        return None
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, KeyError):
        return None


def _value(node: ast.AST) -> Fraction:
    """KeyError for a node that is no arithmetic, such as a power."""
    match node:
        case ast.BinOp():
            return _BINARY[type(node.op)](_value(node.left), _value(node.right))
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_value(node.operand))
        case ast.Constant(value=int() | float()):
            return Fraction(str(node.value))
    raise KeyError(type(node))


def written(value: Fraction) -> str:
    """An integer as it is; other numbers with at most six significant digits."""
    return str(value) if value.denominator == 1 else f"{float(value):.6g}"
