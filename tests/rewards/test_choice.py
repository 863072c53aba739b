import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards import VERIFIERS, Verdict
from pods_jax.rewards.verifiers import choice
from pods_jax.rewards.verifiers.choice import read_option

LETTERS = st.sampled_from("ABCD")


@given(LETTERS, LETTERS)
def test_one_letter_in_any_form(stated, gold):
    for output in (
        stated, f"({stated})", f"{stated}.", f"{stated}) 3.2 g",
        rf"\boxed{{{stated}}}", rf"\boxed{{\text{{{stated}}}}}",
        rf"$\boxed{{\mathrm{{{stated}}}}}$", rf"\boxed{{({stated})}}", rf"\boxed{{{stated}: a weak acid}}",
        f"The answer is {stated}.", f"The answer is ({stated}) because of the acid.", f"Answer: {stated}",
        f"**Answer: {stated}**", f"Answer: **{stated}**", f"answer: {stated.lower()}", f"<answer>{stated}</answer>",
        f"Option {stated} is correct.",
        f"The correct option is {stated}.", f"（{stated}）", f'{{"answer": "{stated}"}}',
        f"<think>Answer: A or B</think>\nAnswer: {stated}", f"Answer: A\nNo:\nAnswer: {stated}", f"Answer:  {stated}",
        f"Answer {' ' * 1000} {stated}", f"The answer is {stated}. Note that C is a distractor.",
        f"{stated} would be the right one.", f"Option {stated} should be correct.", f"The right one is {stated}.",
        f"The answer must be ({stated}).", f"The correct choice would be {stated}, as it is basic.",
        f"The answer is {stated}, not D.", f"The answer is not C.\nAnswer: {stated}", f"#### {stated}",
    ):  # fmt: skip
        assert choice.verify(output, gold).correct == (stated == gold), output


@given(LETTERS, LETTERS, st.sampled_from([", ", " or ", "/", " and ", "", " & ", ") or ("]))
def test_two_letters_are_no_answer(first, second, join):
    for output in (rf"\boxed{{{first}{join}{second}}}", f"Answer: {first}{join}{second}", f"({first}{join}{second})"):
        assert read_option(output) is None, output


@pytest.mark.parametrize(
    "output",
    ["", r"\boxed{}", "A would not be right", "A would be wrong", "Option A cannot be right.", "A is the answer? No",
     "The answer is A? No, C", "Answer: A?", "**Answer: A**?", "Is the answer A? Or C?", "The answer is yes? No.",
     "A would be correct if it were basic.", "A is correct. Wait, B is correct.", "The wrong answer is A",
     "Answer: A, but also C", "The answer is A (or C)", "Answer: A; wait, B", "Answer: A, no, actually B",
     "The incorrect choice would be A.", "The answer would not be A", "Answer: Benzene",
     r"\boxed{\text{Aldehyde}}", "Answer: A base is present", "Answer: C-H bond",
     "Answer: CO2", "Answer: C6H6", "I cannot determine the answer.", "Error: request failed", "Answer: none of these",
     "The answer is not B.", "A\nB\nC", "B) 3\nC) 4", "Both A and B fit", "A hydrogen bond forms", "Answer: N/A",
     "I considered (A), but it is wrong", "Vitamin D", "Answer: C=O", "Answer: B(OH)3", "Option A is wrong.",
     "(A) is not right", "A isn't right", "Answer: 25 C", "Answer: I do not know", "Answer: B's acid"],
)  # fmt: skip
def test_no_answer(output):
    assert choice.verify(output, "A") == Verdict(False, None, "no answer")


JOINTS = [". ", " | ", " - ", " -> ", " vs ", " versus ", " → ", " => ", " = ", " > ", " ~ ", ": ", " then ", " plus ",
          "; ", "\n", r" \to ", r" \rightarrow ", " else ", "...", " – ", " — ", " • ", " * ", " also ", ", then ",
          " otherwise ", " alternatively ", " followed by ", " as well as ", " including ", " : ", " ^ ", " ! ",
          ". Actually ", ". Wait, ", " beats ", " likely ", " # ", " ... or not: ", ". Or maybe ",
          ", either "]  # fmt: skip


@pytest.mark.parametrize("joint", JOINTS)
@given(st.lists(LETTERS, min_size=2, max_size=4, unique=True))
def test_two_options_are_none_whatever_joins_them(joint, letters):
    for text in (joint.join(letters), f"{letters[0]}{joint}({letters[1]})", joint.join(letters).lower()):
        for output in (rf"\boxed{{{text}}}", f"Answer: {text}", f"<answer>{text}</answer>", f"#### {text}", text):
            assert read_option(output) is None, output


@pytest.mark.parametrize(
    "text",
    ["B: a weak acid", "B) 3.2 g", "B) Vitamin C", "B) C-H bond", "B) the C=O bond", "B) 25 °C", "B: 300 K", "B, not D",
     "B because C has no protons", "B. A is wrong", "B rather than C", "B: A weak acid", "B, I think", "(B).", "B)",
     "B: the group A metals", "B as it is basic", "B. Option C is incorrect", "B, since D is false", "B: CO2",
     "B: NaCl and H2O", "B: d-orbital", "B. Note that it is basic", "B. Note that A is a distractor"],
)  # fmt: skip
def test_one_option_with_its_text_or_a_reason(text):
    for output in (rf"\boxed{{{text}}}", f"Answer: {text}", f"<answer>{text}</answer>", f"#### {text}"):
        assert read_option(output) == "B", output


@pytest.mark.parametrize(
    "joint", [" ", " / ", ", ", " -> ", " vs ", " | ", " - ", " or ", ". ", "; ", " then ", "? ", "="]
)
def test_yes_and_no_together_are_none(joint):
    for text in (f"Yes{joint}No", f"no{joint}yes", f"True{joint}False", f"Yes{joint}B"):
        for output in (rf"\boxed{{\text{{{text}}}}}", f"Answer: {text}", f"<answer>{text}</answer>", text):
            assert read_option(output) is None, output


@pytest.mark.parametrize(
    ("output", "gold", "correct"),
    [("Yes", "Yes", True), ("Yes.", "Yes", True), ("No", "Yes", False), ("True", "Yes", True),
     ("Answer: no", "No", True),
     (r"\boxed{\text{No}}", "No", True), ("The answer is yes, because it is safe.", "Yes", True),
     ("Yes or no", "Yes", False), ("no one knows", "No", False), ("Answer: B", "Yes", False)],
)  # fmt: skip
def test_yes_and_no(output, gold, correct):
    assert choice.verify(output, gold).correct == correct


@given(st.text(st.sampled_from(string.ascii_uppercase[:4] + "answer:. ()\n\\boxed{}/,"), max_size=60) | st.text())
def test_no_output_raises_and_the_answer_is_one_option(output):
    option = read_option(output)
    assert option is None or option in ("yes", "no") or (len(option) == 1 and option.isupper())


@pytest.mark.parametrize("gold", ["", "Benzene", "A or B", "5"])
def test_a_gold_must_be_an_option(gold):
    with pytest.raises(UserError, match="is neither a letter nor yes/no"):
        choice.verify("Answer: A", gold)
    assert VERIFIERS["choice"].bounded
