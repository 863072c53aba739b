"""Properties of equality over random answers, with sympy as an oracle for formulas."""

import itertools
import json
import os
import random
import re
import time
from fractions import Fraction
from pathlib import Path

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_answers import answer, formula, text

from pods_jax.rewards.grammar import Unparsable, equivalent, parse, plain_number
from pods_jax.rewards.grammar.nodes import Call, Number, Symbol
from pods_jax.rewards.grammar.points import points
from pods_jax.rewards.grammar.values import same_value
from pods_jax.rewards.verifiers.math import compare

SEEDS = st.integers(0, 2**32)
SHARED = Path(os.environ.get("PODS_JAX_SHARED", Path(__file__).parents[4] / "shared"))


def trees(texts):
    for written in texts:
        try:
            yield written, parse(written)
        except Unparsable:
            continue


def golds(count: int, seed: int) -> list[str]:
    """Different golds beyond the cheap layer, from the local data sets."""
    found: dict[str, None] = {}
    for name in ("math/train", "math/test", "minerva_math/test"):
        path = SHARED / "data" / f"{name}.jsonl"
        if not path.exists():
            pytest.skip(f"{path} is not at hand: set PODS_JAX_SHARED to the folder that holds data/")
        for line in path.read_text(encoding="utf-8").splitlines():
            gold = re.findall(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", json.loads(line)["solution"])
            if gold and plain_number(gold[-1]) is None:
                found[gold[-1]] = None
    return random.Random(seed).sample(sorted(found), count)


# ---------------------------------------------------------------- no exception, and bounded time


def check_texts(seed: int, count: int) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        stated, gold = text(chance), text(chance) or "1"
        start = time.process_time()
        try:
            verdict = compare(stated, gold)
            assert compare(stated, stated).reason in ("match", "unparsed"), stated
        except Exception as error:
            raise AssertionError(f"{stated!r} against {gold!r}") from error
        assert verdict.correct == (verdict.reason == "match")
        assert time.process_time() - start < 5.0, (stated, gold)


def test_no_text_raises_or_takes_long():
    check_texts(0, 150)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_hundred_thousand_texts_do_not_raise_or_take_long(seed):
    check_texts(seed, 10_000)


# ---------------------------------------------------------------- what equality is


def check_that_no_answer_equals_two(known: list[str], answers: list[str]) -> None:
    wanted = list(trees(known))
    for stated, tree in trees(answers):
        paid = [(gold, node) for gold, node in wanted if equivalent(node, tree)]
        for (first, a), (second, b) in itertools.combinations(paid, 2):
            assert equivalent(a, b) or equivalent(b, a), (stated, first, second)


def random_answers(count: int, size: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [answer(chance, size) for _ in range(count)]


def test_no_answer_equals_two_golds_that_are_not_equal():
    check_that_no_answer_equals_two(golds(50, seed=0), random_answers(30, 4, seed=1) + golds(20, seed=2))


def test_no_answer_equals_two_generated_golds_that_are_not_equal():
    answers = random_answers(70, 3, seed=3)
    check_that_no_answer_equals_two(answers, answers[:30])


@pytest.mark.slow
def test_no_answer_equals_two_of_all_golds_that_are_not_equal():
    check_that_no_answer_equals_two(golds(2_000, seed=0), random_answers(150, 5, seed=4) + golds(50, seed=6))


@given(SEEDS)
@settings(max_examples=20)
def test_equality_of_formulas_is_symmetric(seed):
    chance = random.Random(seed)
    pairs = list(trees(formula(chance, chance.randint(1, 4)) for _ in range(6)))
    for (first, a), (second, b) in itertools.combinations(pairs, 2):
        if isinstance(a, Number | Symbol | Call) and isinstance(b, Number | Symbol | Call):
            assert same_value(a, b) == same_value(b, a), (first, second)


def spread(written: str, chance: random.Random) -> str:
    """With blanks where TeX does not read them: between tokens, but not after digits or inside commands or words."""
    if re.search(r"\\(?:text|mathrm|mbox|operatorname|begin)|[A-Za-z]{3}", re.sub(r"\\[A-Za-z]+", "", written)):
        return written
    pieces = re.findall(r"\\[A-Za-z]+|\\.|\.?\d[\d.,]*(?:e[-+]?\d+)?|.", written)
    return "".join(piece + " " * (chance.random() < 0.5 and not piece[-1].isdigit()) for piece in pieces)


def without_blanks(written: str) -> str:
    """Without the blanks of a formula, but those that end a command or stand between digits, or in words."""
    if re.search(r"\\(?:text|mathrm|mbox|operatorname|begin)", written):
        return written
    return re.sub(
        r"(?<=[^\\])\s+(?=[^A-Za-z0-9\s])|(?<=[^A-Za-z0-9\\,])\s+|(?<![A-Za-z\\])(?<=[A-Za-z])\s+(?=[A-Za-z0-9])",
        "",
        written,
    )


def test_blanks_never_change_a_verdict():
    chance = random.Random(4)
    written = golds(100, seed=5) + [formula(chance, 4) for _ in range(50)]
    for first, _ in trees(written):
        for form in (spread(first, chance), without_blanks(first)):
            assert compare(form, first).correct or compare(first, first).reason == "mismatch", (form, first)
            assert compare(form, "1").correct == compare(first, "1").correct, form


# ---------------------------------------------------------------- points


@pytest.mark.parametrize("count", [1, 2, 5, 13, 40])
def test_points_are_drawn_for_any_number_of_letters(count):
    letters = [Symbol(f"x_{place}") for place in range(count)]
    tried = list(points(*letters))
    values = [value for point in tried for value in point.values()]
    assert len(tried) >= 15
    assert all(len(point) == count for point in tried)
    assert max(values) > 1000
    assert min(values) < -1000
    for first, second in itertools.combinations(letters, 2):
        assert sum(point[first.name] == point[second.name] for point in tried) <= 1


def test_points_above_three_are_whole_where_factorials_occur():
    whole = [point["n"] for point in points(parse("n!")) if point["n"].denominator == 1]
    assert len(whole) >= 5
    assert min(whole) > 3


def test_points_lie_beyond_all_numbers_in_the_formulas():
    values = [point["x"] for point in points(parse("|x - 10^{12}|"), parse("x"))]
    assert max(values) > 10**12
    assert min(values) < -(10**12)


@pytest.mark.parametrize("written", [r"\sqrt{-1-x^2}+x", r"x^{x^{x^{x^x}}}", r"\ln(-e^{x})", r"\int_0^x y z dt"])
def test_too_few_values_are_no_equality(written):
    tree = parse(written)
    assert not same_value(tree, Call("add", (tree, Number(Fraction(1)))))


# ---------------------------------------------------------------- sympy as an oracle

x, y, z = sympy.symbols("x y z", positive=True)
ATOMS = [x, y, z, sympy.Integer(1), sympy.Integer(2), sympy.Integer(3), sympy.Rational(1, 2), sympy.pi]
REWRITES = [sympy.expand, sympy.factor, sympy.together, sympy.apart, sympy.trigsimp, sympy.powsimp, sympy.cancel,
            lambda e: e.rewrite(sympy.cos), lambda e: e.rewrite(sympy.exp), lambda e: sympy.expand_trig(e),
            lambda e: sympy.expand_log(e), sympy.radsimp, sympy.simplify]  # fmt: skip


def written_by_sympy(value: sympy.Expr) -> str:
    return sympy.latex(value, ln_notation=True)


def expression(chance: random.Random, size: int) -> sympy.Expr:
    if size <= 1:
        return chance.choice(ATOMS)
    one = [
        sympy.sin,
        sympy.cos,
        sympy.tan,
        sympy.sqrt,
        sympy.log,
        sympy.exp,
        lambda e: e**2,
        lambda e: -e,
        lambda e: 1 / (e + 4),
    ]
    if chance.random() < 0.35:
        return chance.choice(one)(expression(chance, size - 1))
    two = [sympy.Add, sympy.Mul, lambda a, b: a - b, lambda a, b: a / (b + 3)]
    left = chance.randint(1, size - 1)
    return chance.choice(two)(expression(chance, left), expression(chance, size - left))


def rewritten(chance: random.Random, value: sympy.Expr) -> sympy.Expr | None:
    """The same value in another form; None where sympy finds none."""
    try:
        other = chance.choice(REWRITES)(value)
    except (sympy.PolynomialError, NotImplementedError, ValueError):
        return None
    return None if other.has(sympy.zoo, sympy.nan, sympy.I, sympy.Piecewise) else other


def changed(chance: random.Random, value: sympy.Expr) -> sympy.Expr:
    """Another value: one atom is replaced, or a term is added."""
    atoms = sorted(value.atoms(sympy.Symbol, sympy.Integer), key=str)
    if atoms and chance.random() < 0.7:
        return value.subs(chance.choice(atoms), chance.choice([x + 1, y - 2, sympy.Integer(7), 2 * z]))
    return value + chance.choice([1, x, -y, sympy.Rational(1, 10**6)])


def differs(first: sympy.Expr, second: sympy.Expr) -> bool | None:
    """Whether two expressions differ at a point; None where sympy cannot tell."""
    point = {x: sympy.Rational(17, 13), y: sympy.Rational(29, 11), z: sympy.Rational(5, 7)}
    off = sympy.N((first - second).subs(point), 30)
    return bool(abs(off) > 1e-20) if off.is_real else None


@pytest.mark.parametrize("seed", range(5))
def test_verdicts_agree_with_sympy_on_rewritten_and_on_changed_formulas(seed):
    chance = random.Random(seed)
    for _ in range(6):
        value = expression(chance, chance.randint(2, 6))
        if value.has(sympy.zoo, sympy.nan, sympy.I):
            continue
        gold, other = written_by_sympy(value), rewritten(chance, value)
        if other is not None:
            assert compare(written_by_sympy(other), gold).correct, (gold, written_by_sympy(other))
        wrong = changed(chance, value)
        if not wrong.has(sympy.zoo, sympy.nan, sympy.I) and differs(value, wrong):
            assert not compare(written_by_sympy(wrong), gold).correct, (gold, written_by_sympy(wrong))
