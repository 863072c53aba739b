import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.rewards.extract import (
    MAX_CHARS,
    after_hashes,
    after_thinking,
    final_answer,
    in_answer_tags,
    in_box,
    prefill,
)


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("<answer>1</answer> then <answer> 2 </answer>", "2"),
        ("<answer>1</answer></answer>", "1"),
        ("<answer>1</answer><answer>2", "1"),
        (r"\boxed{1}, so \boxed{\frac{1}{2}} and \boxed{3", r"\frac{1}{2}"),
        (r"\boxed{1} and $\boxed{\frac{1}{2}}$, \boxed{3}", r"1, \frac{1}{2}, 3"),
        (r"\boxed{4}, \boxed{4}", "4"),
        (r"\boxed 12.", "12"),
        ("The answer is 5. The answer is not 6.", "5"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        (r"} \boxed{1} {", "1"),
        (r"{ \boxed{1}", "1"),
        (r"\boxed{\text{all of } \fbox{7}}", "7"),
        ("#### 1\n#### 2 \nmore", "2"),
        ("**#### 42**", "42"),
        ("####\n\n18", "18"),
        ("#### 18<|im_end|>", "18"),
        ("The answer is 12. I checked it. It holds", "12"),
        ("the answer is $1,234.50.", "$1,234.50"),
        ("The answer is 12? No, 13.", "12?"),
        ("The answer is 12!", "12"),
        ("**Final Answer:** 18 dollars", "18 dollars"),
        ("Answer: 5\nANSWER: 6", "6"),
        ("The answer is:\n\n7", "7"),
        ("Answer:\n$$\n70{,}000\n$$", "70{,}000"),
        ("Answer:\n\\[\n70\n\\]\nThat is it.", "70"),
        ("**Answer:**\n\n$$ \n\\frac{1}\n{2}\n$$ \n", "\\frac{1}\n{2}"),
        ("####\n$$\n5\n$$", "5"),
        ("#### $$5$$", "$$5$$"),
        (r"<answer>So the answer is \boxed{5}.</answer> \boxed{6}", "5"),
        (r"\boxed{5} #### 6", "5"),
        ("The answer is 5.\n#### 6", "6"),
        ("<think>#### 5</think>The answer is 6", "6"),
        ("<think>a</think><think>#### 5</think>\n#### 6", "6"),
        ("<think> so <answer>5</answer> and #### 6", "5"),
        (r"<think> so <answer>\boxed{5}</answer> but \boxed{6}", "5"),
        ("<think>a</think><think>b <answer>5</answer> #### 6", "5"),
        ("<think>a</think> b </think> #### 6", "6"),
    ],
)
def test_the_marked_answer_is_found(output, answer):
    assert final_answer(output) == answer


@pytest.mark.parametrize(
    "output",
    [
        "",
        "12 + 30 = 42",
        "She sells 18 eggs.",
        "<answer></answer>",
        r"\boxed{}",
        "####",
        "<think>#### 5</think>",
        r"<think> so \boxed{5} but",
        "<think> so #### 5",
        "<think> The answer is 5. <answer>6",
        r"<think>a</think> hm <think> \boxed{5}",
        r"\boxed{5} <think>",
        r"<think>" + " " * MAX_CHARS + r"\boxed{5}",
        "<answer>5",
        r"\boxed{5",
        "I can answer the question: 5",
        "unanswered is 5",
    ],
)
def test_no_marker_no_answer(output):
    assert final_answer(output) is None


def test_only_the_end_of_a_long_output_counts():
    assert final_answer("#### 5 " + "x" * MAX_CHARS) is None
    assert final_answer("x" * MAX_CHARS + "\n#### 5") == "5"


@given(st.text(st.sampled_from("ab\n {}"), max_size=30), st.text(st.sampled_from("ab\n {}"), max_size=30))
def test_boxed_contents_are_found_whatever_stands_around(before, after):
    assert in_box(before + r"\boxed{x{y}z}" + after) == "x{y}z"


@given(st.text(), st.text().filter(lambda text: "<" not in text))
def test_answer_tags_are_found_whatever_stands_before(before, inside):
    assert in_answer_tags(f"{before}<answer>{inside}</answer>") == inside.strip()


@given(st.text())
def test_no_text_raises_and_answers_are_stripped_parts_of_it(output):
    answer = final_answer(output)
    assert answer is None or (answer and answer == answer.strip() and answer in output)


@pytest.mark.parametrize(
    "unit",
    [
        "\\boxed{",
        "{",
        "}",
        "\\{",
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "#",
        "answer",
        "answer ",
        " ",
        "answer:",
        "answer*",
        "*",
        "\n",
        "answer is",
        ". ",
        "<|",
        "\\",
        "=",
        "answer\n",
        "<answer></answer>",
        "\\boxed{}",
    ],
)
def test_repetition_takes_linear_time(unit):
    start = time.process_time()
    final_answer(unit * (200_000 // len(unit)))
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ("<|user|>2+3?<|assistant|><think>\n", "<think>\n"),
        ("<|assistant|><think>", "<think>"),
        ("<|assistant|>\n<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
        ("<|assistant|>\n", ""),
        ("Put your thoughts in <think></think> tags.<|assistant|>", ""),
        ("<think>a</think>", ""),
        ("", ""),
    ],
)
def test_the_part_of_a_prompt_that_belongs_to_the_output(prompt, part):
    assert prefill(prompt) == part


def test_with_the_prefill_an_output_that_never_opens_its_thinking_is_read_as_thinking():
    opened = prefill("Question<|assistant|><think>\n")
    assert final_answer(r"so \boxed{5} but") == "5"
    assert final_answer(opened + r"so \boxed{5} but") is None
    assert final_answer(opened + r"so \boxed{5} but</think>\boxed{6}") == "6"


def test_parts_report_the_absence_of_their_marker():
    assert in_answer_tags("5") is None
    assert in_box("5") is None
    assert after_hashes("5") is None
    assert after_thinking(" 5 ") == "5"
