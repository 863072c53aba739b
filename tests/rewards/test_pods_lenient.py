import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards import VERIFIERS, Verdict, check_gold
from pods_jax.rewards.verifiers.pods_lenient import candidates, quick, verify


@pytest.mark.parametrize(
    ("output", "gold", "correct"),
    [
        ("She sells 18 eggs, so 18.", "18", True),
        ("It costs $1,234.", "1234", True),
        ("It is 5 or 6", "6", True),
        ("It is 5 or 6", "5", False),
        (r"<answer>\frac{1}{2}</answer> of 3", "0.5", True),
        (r"<answer>\frac{1}{2}", "0.5", True),
        (r"\frac{14}{3}", r"\frac{14}{3}", True),
        ("no number", "5", False),
        ("", "5", False),
    ],
)
def test_any_of_three_texts_will_do(output, gold, correct):
    assert verify(output, gold).correct == correct


def test_long_texts_are_not_read():
    assert candidates("9 " + "word " * 100) == ["9"]
    assert candidates("<answer>" + "x+" * 150 + "x</answer>") == []
    assert verify("5" + " " * 10 + "+0" * 200, "5").reason == "mismatch"


def test_a_wrong_output_is_logged_with_the_contents_of_its_answer_tag():
    assert verify("<answer> 6 </answer> not 7", "5") == Verdict(False, "6", "mismatch")
    assert verify(r"<answer>\foo</answer> 7", "5") == Verdict(False, r"\foo", "unparsed")
    assert verify("It is 5 or 6", "6") == Verdict(True, "6", "match")


@given(st.integers(-999, 999), st.integers(-999, 999))
def test_it_pays_for_the_last_number_where_the_strict_rule_does_not(stated, gold):
    output = f"The result of all this would be {stated}"
    assert verify(output, str(gold)).correct == (stated == gold)
    assert not VERIFIERS["math"].verify(output, str(gold)).correct


@given(st.text(), st.integers(-99, 99))
def test_the_quick_layer_agrees(output, gold):
    verdict = quick(output, str(gold))
    assert verdict is None or verdict == verify(output, str(gold))
    assert len(candidates(output)) <= 3


def test_its_golds_are_those_of_math():
    with pytest.raises(UserError, match="empty"):
        check_gold("", "pods_lenient")
