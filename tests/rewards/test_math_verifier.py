"""Task math, kind by kind: answers that are generated together with the truth about them."""

import itertools
import time
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool, Verdict, check_gold
from pods_jax.rewards.verifiers.math import quick, verify

SMALL = st.integers(-50, 50)
POSITIVE = st.integers(1, 50)
RATIONALS = st.builds(Fraction, st.integers(-60, 60), st.integers(1, 12))
UNITS = st.sampled_from(
    [r"\text{ cm}", r" \text{ miles per hour}", " apples", r"\,\mathrm{kg}", r"\text{ square feet}"]
)


def same(answer: str, gold: str) -> bool:
    return verify(rf"Therefore \boxed{{{answer}}}.", gold).correct


def latex(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}" if value.denominator > 1 else str(value)


def mixed(value: Fraction) -> str:
    whole, part = divmod(abs(value), 1)
    return f"{'-' if value < 0 else ''}{whole if whole or not part else ''}{latex(part) if part else ''}"


def polynomial(coefficients) -> str:
    return "+".join(f"({c})x^{{{power}}}" for power, c in enumerate(coefficients))


@given(RATIONALS, RATIONALS)
def test_rationals_in_any_form_are_equal_exactly_when_their_values_are(stated, gold):
    plain = latex(stated)
    forms = {str(stated), plain, plain.replace("frac", "dfrac"), mixed(stated), rf"x = {plain}", rf"${stated}$",
             rf"\left({plain}\right)", f"{stated}.", rf"{plain} \text{{ units}}"}  # fmt: skip
    for form in forms:
        assert same(form, latex(gold)) == (stated == gold), form
        assert same(form, latex(stated)), form


@given(st.integers(-(10**12), 10**12), st.integers(-6, 6), st.integers(-5, 5))
def test_decimals_and_scientific_notation_are_exact(digits, exponent, off):
    value = Fraction(digits) * Fraction(10) ** exponent
    other = value + off * Fraction(10) ** (exponent - 3)
    assert same(rf"{digits} \times 10^{{{exponent}}}", latex(value))
    assert same(f"{digits}e{exponent}", latex(value))
    assert same(rf"{digits} \cdot 10^{{{exponent}}}", latex(other)) == (off == 0)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_thousands(stated, gold):
    for separator in (",", "{,}", r",\!", r"\,", " "):
        form = f"{stated:,}".replace(",", separator)
        assert same(form, str(gold)) == (stated == gold), form
        assert same(form, f"{stated:,}"), form


@given(POSITIVE, POSITIVE, UNITS)
def test_a_unit_may_be_left_out_but_not_exchanged(stated, gold, unit):
    assert same(f"{stated}{unit}", str(gold)) == (stated == gold)
    assert same(str(stated), f"{gold}{unit}") == (stated == gold)
    assert not same(rf"{stated}\text{{ seconds}}", f"{stated}{unit}")
    assert same(rf"\${stated}", rf"{gold} \text{{ dollars}}") == (stated == gold)


@given(st.integers(0, 300), st.integers(0, 300))
def test_percent_is_a_hundredth_or_above_one_the_bare_number(stated, gold):
    assert same(rf"{stated}\%", rf"{gold}\%") == (stated == gold)
    assert same(rf"{stated}\%", latex(Fraction(gold, 100))) == (stated == gold or (100 * stated == gold and stated > 1))
    assert same(f"{stated}%", str(gold)) == (stated == 100 * gold or (stated == gold and stated > 1))


@given(st.integers(0, 720), st.integers(0, 720))
def test_degrees_and_radians(stated, gold):
    assert same(rf"{stated}^\circ", rf"{gold}^{{\circ}}") == (stated == gold)
    assert same(f"{stated}°", str(gold)) == (stated == gold)
    assert same(rf"\frac{{{stated}\pi}}{{180}}", rf"{gold}^\circ") == (stated == gold)


@given(st.integers(0, 2000), st.integers(2, 16), st.integers(2, 16))
def test_bases(value, base, other):
    digits, left = "", value
    while left or not digits:
        digits, left = "0123456789ABCDEF"[left % base] + digits, left // base
    gold = f"{digits}_{{{base}}}"
    assert same(rf"{digits}_{{{base}}}", gold)
    assert same(rf"{digits}_{{{other}}}", gold) == (base == other)
    assume(digits.isdigit())
    assert same(digits, gold)
    assert same(str(value), gold) == (digits == str(value))


@given(st.lists(SMALL, min_size=2, max_size=5, unique=True), st.randoms(), st.integers(0, 4), st.integers(1, 9))
def test_lists_sets_and_tuples(values, random, place, off):
    shuffled = random.sample(values, len(values))
    changed = [v + off * (i == place % len(values)) for i, v in enumerate(values)]
    gold = ", ".join(map(str, values))
    for form in (", ".join(map(str, shuffled)), rf"\left\{{{', '.join(map(str, shuffled))}\right\}}",
                 r" \text{ and } ".join(map(str, shuffled))):  # fmt: skip
        assert same(form, gold), form
        assert same(form, rf"\{{{gold}\}}"), form
    assert same(f"({', '.join(map(str, shuffled))})", f"({gold})") == (shuffled == values)
    assert not same(f"({gold})", rf"\{{{gold}\}}")
    assert same(", ".join(map(str, changed)), gold) == (sorted(changed) == sorted(values))
    assert not same(", ".join(map(str, values[1:])), gold)
    assert not same(f"{gold}, 99", gold)
    assert not same(gold, str(values[0]))


@given(SMALL, POSITIVE, st.sampled_from("[("), st.sampled_from("])"), st.sampled_from("[("), st.sampled_from("])"))
def test_intervals_and_inequalities(low, length, opening, closing, other_opening, other_closing):
    high, gold = low + length, f"{opening}{low},{low + length}{closing}"
    if (opening, closing) == ("(", ")"):
        gold = f"D = {gold}"
    equal = (opening, closing) == (other_opening, other_closing)
    assert same(f"{other_opening}{low}, {high}{other_closing}", gold) == equal
    left, right = (r"\le" if mark in "[]" else "<" for mark in (other_opening, other_closing))
    assert same(rf"{low} {left} x {right} {high}", gold) == equal
    assert not same(f"{opening}{low},{high + 1}{closing}", gold)
    assert same(rf"x {right} {high}", rf"(-\infty, {high}{closing}") == (closing == other_closing)


@given(st.lists(st.lists(RATIONALS, min_size=2, max_size=3), min_size=2, max_size=3), st.integers(0, 8), st.booleans())
def test_matrices(rows, place, change):
    rows = [row[: min(map(len, rows))] for row in rows]
    other = [list(row) for row in rows]
    other[place % len(rows)][place % len(rows[0])] += change

    def written(rows, environment):
        body = r" \\ ".join(" & ".join(map(latex, row)) for row in rows)
        return rf"\begin{{{environment}}} {body} \end{{{environment}}}"

    assert same(written(other, "bmatrix"), written(rows, "pmatrix")) == (not change)
    transposed = [list(column) for column in zip(*rows, strict=True)]
    assert same(written(transposed, "pmatrix"), written(rows, "pmatrix")) == (transposed == rows)


@given(SMALL, SMALL, SMALL, st.integers(-9, 9), st.integers(-2, 2))
def test_equations_are_equal_up_to_a_factor(a, b, c, factor, off):
    assume(factor and (a or b))
    gold = f"{a}x + {b}y = {c}".replace("+ -", "- ")
    scaled = f"{factor * a}x + {factor * b}y = {factor * c + off}".replace("+ -", "- ")
    assert same(scaled, gold) == (off == 0)
    assert same(f"{c} = {b}y + {a}x".replace("+ -", "- "), gold)


@given(SMALL, POSITIVE)
def test_plus_minus(middle, distance):
    gold = rf"{middle} \pm {distance}"
    assert same(f"{middle - distance}, {middle + distance}", gold)
    assert same(rf"x = {middle} \pm {distance}", f"{middle + distance}, {middle - distance}")
    assert not same(str(middle + distance), gold)
    assert not same(gold, str(middle + distance))


@given(st.lists(SMALL, min_size=1, max_size=3), st.lists(SMALL, min_size=1, max_size=3), st.integers(0, 4), SMALL)
def test_a_product_of_polynomials_equals_its_expansion_and_nothing_else(p, q, place, off):
    product = [0] * (len(p) + len(q) - 1)
    for (i, a), (j, b) in itertools.product(enumerate(p), enumerate(q)):
        product[i + j] += a * b
    gold = f"({polynomial(p)})({polynomial(q)})"
    assert same(polynomial(product), gold)
    product[place % len(product)] += off
    assert same(polynomial(product), gold) == (off == 0)


@given(POSITIVE, POSITIVE, st.integers(2, 40), st.integers(-3, 3))
def test_roots(a, b, radicand, off):
    assert same(rf"\sqrt{{{a * a * radicand}}}", rf"{a}\sqrt{{{radicand}}}")
    assert same(rf"\frac{{{b * radicand}}}{{{a}\sqrt{{{radicand}}}}}", rf"\frac{{{b}\sqrt{{{radicand}}}}}{{{a}}}")
    assert same(rf"\sqrt{{{a * a * radicand + off}}}", rf"{a}\sqrt{{{radicand}}}") == (off == 0)


@given(st.integers(3, 200), st.integers(1, 9))
def test_tiny_differences_are_differences(power, digit):
    assert not same(f"1.{'0' * power}{digit}", "1")
    assert not same(rf"\sqrt{{2}} + {digit} \cdot 10^{{-{power}}}", r"\sqrt{2}")
    assert not same(rf"x^{{{power}}} + {digit}", rf"x^{{{power}}}")
    assert not same(rf"\frac{{1}}{{{power}!}}", rf"\frac{{1}}{{{power + 1}!}}")
    assert not same(rf"e^{{-{power}}}", "0")


@pytest.mark.parametrize(
    "answer",
    [
        r"((10!)!)!",
        r"((10!!)!!)!!",
        r"\sqrt{(\pi^9)!!}",
        "9" + "!" * 1500,
        r"\binom{1000000000}{500000000}",
        r"9^{9^{9^{9}}}",
        r"10^{10^{10}}",
        r"2^{10000000000}",
        r"0.5^{10000000000}",
        r"(x+1)^{100000}",
        r"\sqrt[1000000000]{2}",
        r"\sqrt{" * 400 + "4" + "}" * 400,
        "(" * 900 + "1" + ")" * 900,
        "-" * 1500 + "1",
        "1+" * 900 + "1",
        "2^" * 900 + "2",
        "{" * 1900,
        "9" * 6001,
        "9," * 900 + "9",
        r"\frac{" * 300,
        r"\pm" * 400 + "1",
        r"\sum_{k=1}^{1000000000000} k^{k}",
        r"\int_0^{\infty} \sin(x^{x}) dx",
        r"\sin(10^{10^{8}})",
        r"\tan(x)^{40}\sec(x)^{37}\cos(x)^{300}",
        r"e^{e^{e^{e^{e}}}}",
        r"\log_{1}(5)",
        r"a!b!c!d!e!f!",
        r"x_{" * 500,
        r"\text{" * 500,
        "<" * 1000,
        r"1\le " * 300 + "1",
        r"\lfloor e^{900} \rfloor",
        "abcdefghijklmnopqrstuvwxyz" * 70,
        r"\begin{pmatrix}" + "1&" * 500 + r"1\end{pmatrix}",
        r"\{" + ",".join(map(str, range(400))) + r"\}",
        "gcd(10^{400},10^{399})" * 20,
        r"\frac9e99",
        "x_9e99",
        r"\log_1.5e3 4",
        r"\vec{C",
        r"\cosh(10^{400})",
        "1e9999",
        r"f: x \mapsto x > 1",
        r"C_{\lim_{x \to 2} \b}^{3} < x < 2",
        r"\sum_{k=1}^{\infty} y",
        r"\lim_{x \to 0} \lim_{y \to x} \frac{x}{y}",
        r"\begin{vmatrix} x \pm 1 & 2 \\ 3 & 4 \end{vmatrix}",
        r"\begin{vmatrix} 9 & " * 6 + "1" + r" \\ 2 & 3 \end{vmatrix}" * 6,
    ],
)
@pytest.mark.parametrize("gold", ["7", r"\sqrt{2}", "x", "1, 2", "(0, 1)", "x = 2y"])
def test_monsters_are_refused_in_no_time(answer, gold):
    start = time.process_time()
    assert not same(answer, gold)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch HACKED')",
        "open('HACKED', 'w')",
        "(1).__class__.__base__.__subclasses__()",
        "lambda: 1",
        "[1, 2, __import__('time').sleep(30)]",
        "exec('import os')",
        r"\input{/etc/passwd}",
        r"\write18{touch HACKED}",
        "1 if True else 2",
        "1;import os",
        "symbols('x')",
        "Integer(1)",
    ],
)
def test_code_is_text(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for gold in ("1", r"\pi", r"\begin{pmatrix}1\\2\end{pmatrix}"):
        assert not same(code, gold)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("output", "gold", "correct"),
    [
        (r"Either \boxed{3} or \boxed{5}.", "3", False),
        (r"Either \boxed{3} or \boxed{5}.", "5", False),
        (r"\boxed{3}, \boxed{5}", "3, 5", True),
        (r"First \boxed{3}. Then \boxed{5}.", "3, 5", False),
        (r"First \boxed{3}. Then \boxed{5}.", "5", True),
        (r"<think>\boxed{5}</think> \boxed{3}", "5", False),
        (r"<answer>\frac12</answer>", "0.5", True),
        (r"The answer is $\frac{1}{2}$.", "0.5", True),
        (r"The answer is not 5.", "5", False),
        (r"The answer is 5? Let me check.", "5", False),
        (r"The answer is $\sqrt{2}$? No.", r"\sqrt{2}", False),
        ("We get 5.", "5", False),
        (r"\boxed{}", "0", False),
        ("", "0", False),
        (r"\boxed{5", "5", False),
    ],
)
def test_one_answer_is_taken(output, gold, correct):
    assert verify(output, gold).correct == correct


def test_verdicts_say_how_far_they_came():
    assert verify("no mark", "5") == Verdict(False, None, "no answer")
    assert verify(r"\boxed{\foo}", "5") == Verdict(False, r"\foo", "unparsed")
    assert verify(r"\boxed{\foo  x}", r"\foo x") == Verdict(True, r"\foo  x", "match")
    assert verify(r"\boxed{6}", "5") == Verdict(False, "6", "mismatch")
    assert verify(r"\boxed{x}", "y") == Verdict(False, "x", "mismatch")


@given(st.text(st.sampled_from(r"0123456789.,/-+^ \{}()frac$%x="), max_size=25), RATIONALS)
def test_the_quick_layer_agrees_with_the_judge(answer, gold):
    output = rf"\boxed{{{answer}}}"
    verdict = quick(output, str(gold))
    assert verdict is None or verdict == verify(output, str(gold))


@pytest.mark.parametrize(
    ("gold", "message"), [("", "empty"), ("  ", "empty"), (r"\frac{1}{2", "unbalanced"), ("a}", "unb")]
)
def test_golds_that_cannot_be_used(gold, message):
    with pytest.raises(UserError, match=message):
        check_gold(gold, "math")


def test_a_worker_and_the_caller_give_the_same_verdicts():
    pairs = [(r"\boxed{\sqrt{8}}", r"2\sqrt{2}"), (r"\boxed{5}", "5"), ("", "5"), (r"\boxed{((10!)!)!}", "5")]
    with RewardPool(num_workers=1) as pool:
        outputs, golds = zip(*pairs, strict=True)
        assert pool.score(outputs, golds, "math") == [verify(output, gold) for output, gold in pairs]
