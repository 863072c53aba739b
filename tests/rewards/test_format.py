import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards import FORMATS

PIECES = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", " ", "\n", "a", "1", "####", r"\boxed{", "}"])


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("none", "", 1.0),
        ("digits", " 42\n", 1.0),
        ("digits", "-42", 0.0),
        ("digits", "4 2", 0.0),
        ("digits", "", 0.0),
        ("digits", "٤٢", 0.0),
        ("think_answer", "<think>a</think>\n<answer>1</answer>", 1.0),
        ("think_answer", " <think></think><answer></answer>\n", 1.0),
        ("think_answer", "<think>a</think><answer>1</answer>!", 0.0),
        ("think_answer", "Hm <think>a</think><answer>1</answer>", 0.0),
        ("think_answer", "<think>a</think> so <answer>1</answer>", 0.0),
        ("think_answer", "<answer>1</answer><think>a</think>", 0.0),
        ("think_answer", "<think>a<answer>1</answer></think>", 0.0),
        ("think_answer", "<think>a</think><answer>1</answer><answer>2</answer>", 0.0),
        ("think_answer", "<answer>1</answer>", 0.0),
        ("tag_count", "<think>a</think><answer>1</answer>", 1.0),
        ("tag_count", "</answer><think>", 0.5),
        ("tag_count", "<think><think></think>", 0.25),
        ("tag_count", "", 0.0),
        ("boxed_or_hash", r"so \boxed{5}", 1.0),
        ("boxed_or_hash", "#### 5", 1.0),
        ("boxed_or_hash", "the answer is 5", 0.0),
        ("boxed_or_hash", r"\boxed{}", 0.0),
        ("boxed_or_hash", "<think>#### 5</think>", 0.0),
    ],
)
def test_rewards(name, text, reward):
    assert FORMATS[name](text) == reward


@given(st.lists(PIECES, max_size=12).map("".join) | st.text())
def test_rewards_are_in_the_unit_interval_and_full_form_has_all_tags(text):
    rewards = {name: reward(text) for name, reward in FORMATS.items()}
    assert all(0.0 <= reward <= 1.0 for reward in rewards.values())
    assert rewards["think_answer"] <= rewards["tag_count"]


def test_unknown_formats_are_named():
    with pytest.raises(UserError, match="did you mean 'digits'"):
        FORMATS["digit"]
