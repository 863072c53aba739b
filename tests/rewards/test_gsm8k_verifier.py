import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards import Verdict, verify
from pods_jax.rewards.verifiers import gsm8k
from pods_jax.rewards.verifiers.gsm8k import calculated

PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        r"\boxed{",
        "}",
        "{",
        "####",
        "answer is",
        "answer:",
        "$",
        "\\",
        "\n",
        " ",
        ",",
        ".",
        "-",
        "12",
        "9" * 400,
        "1e999999999",
        "é",
        "\ud800",
        "½",
        "\0",
        "=",
        "/",
        "**",
        "nan",
        "million",
    ]
)


@pytest.mark.parametrize(
    ("output", "gold", "verdict"),
    [
        ("6 * 3 = 18\n#### 18", "18", Verdict(True, "18", "match")),
        ("#### 1,200.50", "1200.5", Verdict(True, "2401/2", "match")),
        ("#### 18", "19", Verdict(False, "18", "mismatch")),
        ("#### 0", "0", Verdict(True, "0", "match")),
        ("#### 0.1", "0.1000001", Verdict(False, "1/10", "mismatch")),
        ("#### 1000050", "1000000", Verdict(False, "1000050", "mismatch")),
        ("So the answer is 18? No.", "18", Verdict(False, None, "no answer")),
        ("#### 10, 11, 12", "12", Verdict(False, None, "no answer")),
        ("#### 18\n#### 19", "18", Verdict(False, "19", "mismatch")),
        ("She sells 18.", "18", Verdict(False, None, "no answer")),
        ("<think>#### 18</think>I do not know", "18", Verdict(False, None, "no answer")),
        ("#### " + "9" * 5000, "7", Verdict(False, None, "no answer")),
    ],
)
def test_verdicts(output, gold, verdict):
    assert gsm8k.verify(output, gold) == verdict


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_correct_exactly_when_the_numbers_are_equal(stated, gold):
    for output in (
        f"#### {stated:,}",
        f"so \\boxed{{{stated}}}.",
        f"<answer>${stated}</answer>",
        f"The answer is {stated}.",
    ):
        assert verify(output, str(gold), "gsm8k") == (stated == gold)
        assert verify(output, f"{stated:,}", "gsm8k")


@given(st.lists(PIECES, max_size=20).map("".join) | st.text())
def test_no_output_raises(output):
    assert isinstance(verify(output, "12", "gsm8k"), bool)


@pytest.mark.parametrize("unit", ["#### 9", r"\boxed{", "9,", "<answer>9", "answer is 9 ", "$1 ", "9", "1/"])
def test_long_outputs_take_little_time(unit):
    start = time.process_time()
    verify(unit * (200_000 // len(unit)), "9", "gsm8k")
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    "text",
    ["5", "5 dollars", "5 cups of feed", "5 miles from City A.", "5 per day", "5 each", "5%", "$5", "5 km/h",
     "5 apples left", "5 years old", "She makes $5 every day at the farmers' market.", "x = 5",
     "Total = 5", "N=5", "Her total profit = $5",
     "2 + 3 = 5", "2*3-1 = 5", "10 eggs/day / 2 = 5", "9 eggs/day * $2/egg - 13 = $5/day", "5 square feet",
     "5 red marbles", "5 in total", "The total is 5 miles.", "5 children", "5.0", "5 lbs.", "5 degrees Celsius",
     "He has a total of 5 pens", "(2+8)/2 = 5 = 5", "5 boxes per hour", "5 L", r"2 \times 2.5 = 5", "-(-5) = 5"],
)  # fmt: skip
def test_forms_of_five(text):
    for output in (f"#### {text}", f"<answer>{text}</answer>", f"The answer is {text}"):
        assert verify(output, "5", "gsm8k"), output


@pytest.mark.parametrize(
    ("text", "correct"),
    [("2 * 2 = 4\n4 + 1 = 5", True), ("2 * 2 = 4\nTotal = 5", True), ("2 * 2 = 3\n3 + 2 = 5", False),
     ("x = 4\ny = 5", False),
     ("2 + 2 = 4\n5", True), ("4\n5", False), ("4\n4 + 1 = 5", False), ("4 + 1 = 5\n6", False)],
)  # fmt: skip
def test_calculations_of_several_lines(text, correct):
    assert verify(f"<answer>{text}</answer>", "5", "gsm8k") == correct


@pytest.mark.parametrize(
    "text",
    ["6 = 5", "5 wrong", "5 point three", "5 tens", "5 twelfths", "5 cubed", "5 quadrillion", "5 negative", "5 six",
     "5 sixes", "5 K", "5k", "5 M", "5 B", "5 or more", "5 more", "5 dozen", "5 i", "5 e", "5 pi", "5 square", "5 not",
     "5, no", "5?", "negative 5", "half of 5", "She does not have 5 pens", "It isn't 5", "2+2 = 5", "6 = 6 = 5",
     "5 = 6", "-5", "5 and a half", "5 feet and six inches", "5 in base seven", "5 in hex", "5 minus one", "5 squared",
     "5 factorial", "5 times", "5 halves", "5 quarters", "5 thousandths", "5 billionths", "about 5", "5-ish",
     "5 million", "5 zeros", "5 hundred wrong", "sqrt 5", "5 percent off", "twice 5 dollars", "The root of 5",
     "The answer would be 5", "Not 5 miles.", "5 x", "5 mod", "5 wrong = 5", "6 dollars = 5 dollars", "5 per hundred",
     "5 remains", "5 is what remains", "5 ½", "5½", "She makes $5 and spends $6.", "Everything but 5 dollars",
     "6 or 5", "6, 5", "6 5", "5 5", "It fell by 5 dollars", "1/(1-1) = 5", "((5 = 5", "5 = ", "()= 5", "seven = 5",
     "-x = 5",     "not x = 5", "x + y = 5", "half = 5", "½ = 5", "√x = 5"],
)  # fmt: skip
def test_what_is_not_five(text):
    for output in (f"#### {text}", f"<answer>{text}</answer>", rf"\boxed{{\text{{{text}}}}}", f"The answer is {text}"):
        assert not verify(output, "5", "gsm8k"), output


CALCULATIONS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: "({} {} {})".format(*parts)),
    max_leaves=10,
)


@given(CALCULATIONS)
def test_calculations_have_their_value(text):
    value = eval(text)  # of digits and signs that the strategy made
    assert calculated(text) == calculated(f"{text} apples/day") == value
    assert verify(f"#### {text} = {value}", str(value), "gsm8k")
    assert not verify(f"#### {text} = {value + 1}", str(value + 1), "gsm8k")


@pytest.mark.parametrize("gold", ["", "twelve", "#### 12", "1 or 2"])
def test_a_gold_must_be_a_number(gold):
    with pytest.raises(UserError, match="is not a number"):
        verify("#### 12", gold, "gsm8k")
