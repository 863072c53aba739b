import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards import Verdict, verify
from pods_jax.rewards.verifiers.gsm8k import judge

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
    assert judge(output, gold) == verdict


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


@pytest.mark.parametrize("gold", ["", "twelve", "#### 12", "1 or 2"])
def test_a_gold_must_be_a_number(gold):
    with pytest.raises(UserError, match="is not a number"):
        verify("#### 12", gold, "gsm8k")
