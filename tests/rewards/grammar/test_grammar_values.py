"""The two evaluators and the comparison by points, against Fraction, math and mpmath themselves."""

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.rewards.grammar.nodes import Call, Number, Symbol, height, symbols
from pods_jax.rewards.grammar.numeric import evaluate
from pods_jax.rewards.grammar.parse import parse
from pods_jax.rewards.grammar.rationals import Inexact, TooLarge, Undefined, exact_value
from pods_jax.rewards.grammar.values import proportional, same_value

RATIONALS = st.builds(Fraction, st.integers(-99, 99), st.integers(1, 99))


@given(RATIONALS, RATIONALS, st.integers(1, 6))
def test_exact_arithmetic_is_that_of_fractions(a, b, power):
    point = {"a": a, "b": b}
    assert exact_value(parse("a + b - a b"), point) == a + b - a * b
    assert exact_value(parse(rf"a^{power} + |b|"), point) == a**power + abs(b)
    assert exact_value(parse(r"\lfloor a \rfloor + \lceil b \rceil"), point) == math.floor(a) + math.ceil(b)
    if b:
        assert exact_value(parse(r"\frac{a}{b}"), point) == a / b


@given(st.integers(0, 10**30), st.integers(2, 9))
def test_roots_are_exact_or_refused(value, degree):
    power = Number(Fraction(value**degree))
    assert exact_value(Call("root", (power, Number(Fraction(degree)))), {}) == value
    if value > 1:
        with pytest.raises(Inexact):
            exact_value(Call("root", (Number(power.value + 1), Number(Fraction(degree)))), {})


@pytest.mark.parametrize(
    ("text", "error"),
    [(r"\frac{1}{0}", Undefined), ("0^0", Undefined), ("0^{-1}", Undefined), (r"\sqrt{2}", Inexact), (r"\pi", Inexact),
     ("(-1)!", Inexact), ("9^{9^9}", TooLarge), ("9999!", TooLarge), (r"\binom{99999}{5}", TooLarge),
     ("9999!!", TooLarge), ("(1/2)!!", Inexact)],
)  # fmt: skip
def test_what_has_no_exact_value(text, error):
    with pytest.raises(error):
        exact_value(parse(text), {})


@pytest.mark.parametrize(
    ("text", "value"),
    [(r"\sin 2", lambda: mpmath.sin(2)), (r"\sqrt[3]{-5}", lambda: -mpmath.cbrt(5)), (r"e^{9}", lambda: mpmath.exp(9)),
     (r"\log_3 7", lambda: mpmath.log(7, 3)), (r"\arctan \frac12", lambda: mpmath.atan(mpmath.mpf(1) / 2)),
     (r"\sin 30^\circ", lambda: mpmath.mpf(1) / 2), (r"2^{\pi}", lambda: mpmath.mpf(2) ** mpmath.pi)],
)  # fmt: skip
def test_numeric_values_are_good_to_all_their_digits(text, value):
    [found], _, digits = evaluate((parse(text),), {}, False)
    with mpmath.workdps(digits):
        assert abs(found - value()) < mpmath.mpf(10) ** (10 - digits) * abs(value())


@given(st.integers(20, 390))
def test_precision_follows_the_magnitudes(power):
    assert not same_value(parse(rf"\pi + 10^{{{power}}}"), parse(rf"10^{{{power}}}"))
    assert not same_value(parse(rf"\pi + 10^{{-{power}}}"), parse(r"\pi"))
    assert same_value(parse(rf"\pi + 10^{{{power}}} - 10^{{{power}}}"), parse(r"\pi"))
    assert same_value(parse(rf"10^{{{power}}}\sin(\pi)"), parse("0"))


@given(RATIONALS.filter(bool), RATIONALS)
def test_proportion(factor, off):
    left, right = parse("2x - y + 3"), Call("mul", (Number(factor), parse("2x - y + 3")))
    assert proportional(left, right, positive=False)
    assert proportional(left, right, positive=True) == (factor > 0)
    assert proportional(left, Call("add", (right, Number(off))), positive=False) == (not off)
    assert not proportional(left, parse("0"), positive=False)


def test_points_outside_of_the_domain_are_passed_over():
    assert same_value(parse(r"\ln(xy)"), parse(r"\ln x + \ln y"))
    assert same_value(parse(r"\frac{x^2-1}{x-1}"), parse("x+1"))
    assert not same_value(parse(r"\sqrt{x^2}"), parse("x"))
    assert not same_value(parse(r"\frac{1}{0}"), parse(r"\frac{1}{0}"))


def test_trees_tell_their_symbols_and_height():
    tree = parse("x_1 + 2y")
    assert symbols(tree, Symbol("z")) == ["x_1", "y", "z"]
    assert height(tree) == 3
    assert height(Symbol("x")) == 1
