"""The calculator's values against exact arithmetic, and what it refuses to read."""

import operator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.data import Example
from pods_jax.environments.calculator import Calculator, calculated, written

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NUMBERS = st.integers(0, 9999).map(str) | st.decimals(0, 999, places=2).map(str)


@given(st.lists(st.tuples(st.sampled_from(sorted(SIGNS)), NUMBERS), min_size=1, max_size=6), NUMBERS)
def test_values_are_exact(rest, first):
    """Each sign is applied to all that stands before it, in brackets."""
    text = first
    value = Fraction(first)
    for sign, number in rest:
        text = f"({text}) {sign} {number}"
        value = SIGNS[sign](value, Fraction(number))
    assert calculated(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-(2 - 5)", 3),
        ("10 / 4", Fraction(5, 2)),
        (" 7 ", 7),
        ("2 ** 9", None),
        ("7 // 2", None),
        ("1 / 0", None),
        ("(1)(2)", None),
        ("1 +", None),
        ("", None),
        ("...", None),
        ("012", None),
    ],
)
def test_what_is_arithmetic(text, value):
    assert calculated(text) == value


@pytest.mark.parametrize(
    ("turn", "answer"),
    [
        ("323 + 271 = 334.", ("594", 0.5, False)),
        ("so 1 + 1 = 3, and 2 * 21 =", ("42", 0.5, False)),
        ("the sum is 10 / 4 =", ("2.5", 0.5, False)),
        ("Like terms. 888 + 265 = 1055, or", ("1153", 0.5, False)),
        ("-(.5 + 2) =", ("-2.5", 0.5, False)),
        ("1 - 1 =", ("0", 0.5, False)),
        ("x = y", ("error", 0.0, False)),
        ("__import__('os') =", ("error", 0.0, False)),
        ("The answer is 594.", ("", 0.0, True)),
        ("", ("", 0.0, True)),
    ],
)
def test_a_turn_with_an_equals_sign_is_a_call(turn, answer):
    calculator = Calculator(call_reward=0.5)
    assert calculator.reset(Example("323 + 271", "594")) is None
    assert calculator.step(turn) == answer


def test_long_expressions_have_no_value():
    assert Calculator().step("1+" * 49 + "1=") == ("50", 0.0, False)
    assert Calculator().step("1+" * 50 + "1=") == ("error", 0.0, False)
    assert Calculator().step("1+" * 50_000 + "1=") == ("error", 0.0, False)


def test_how_values_are_written():
    assert [written(Fraction(x)) for x in ("12", "-3", "1/3", "0.5")] == ["12", "-3", "0.333333", "0.5"]
