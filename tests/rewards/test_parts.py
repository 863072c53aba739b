import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards.parts import PARTS, REWARD_SETS, Outputs, compose, weights_of

PERFECT = "<think>\na\n</think>\n<answer>\n5\n</answer>"
TEXTS = st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "\n", "x", " "]), max_size=14).map(
    "".join
)


def outputs(texts, correct=None, lengths=None, max_length=100) -> Outputs:
    n = len(texts)
    lengths = lengths or [1] * n
    return Outputs(
        texts=texts, prompts=["p"] * n, golds=["5"] * n, kinds=["k"] * n, correct=correct or [True] * n,
        lengths=lengths, truncated=[length == max_length for length in lengths], max_length=max_length,
    )  # fmt: skip


@given(st.lists(TEXTS, min_size=1, max_size=5), st.booleans())
def test_the_reward_is_the_weighted_sum_of_the_parts(texts, correct):
    for weights in REWARD_SETS.values():
        rewards, parts = compose(outputs(texts, [correct] * len(texts)), weights, {})
        assert parts.keys() == weights.keys()
        assert parts["correctness"] == [float(correct)] * len(texts)
        for place, reward in enumerate(rewards):
            assert reward == pytest.approx(sum(weights[name] * parts[name][place] for name in weights))
            assert all(0.0 <= parts[name][place] <= 1.0 for name in weights)


def test_the_authors_sets_have_the_published_ranges():
    for name, most in (("pods_single_device", 1.2), ("pods_multi_device", 3.0)):
        rewards, _ = compose(outputs([PERFECT, ""], [True, False]), weights_of(name), {})
        least = 0.1 if name == "pods_single_device" else 0.0  # an empty text has nothing outside of the form
        assert rewards == pytest.approx([most, least])


@pytest.mark.parametrize(
    ("text", "near", "lines", "tag_lines"),
    [
        (PERFECT, 1.0, 1.0, 1.0),
        ("<think>a</think><answer>5</answer>", 1.0, 0.0, 0.0),
        ("<think>a</think> <answer>5</answer>", 1.0, 0.0, 0.0),
        ("Hello " + PERFECT, 0.94, 0.0, 1.0),
        (PERFECT + "\n", 0.99, 0.0, 1.0),
        ("x" * 30, 0.7, 0.0, 0.0),
        ("x" * 300, 0.0, 0.0, 0.0),
        ("<think>\na\n</think>\n\n<answer>\n5\n</answer>", 0.6, 0.0, 1.0),
        ("<think>\na\n</think>\n", 1 - 0.19, 0.0, 0.5),
    ],
)
def test_the_authors_formats(text, near, lines, tag_lines):
    _, parts = compose(outputs([text]), {"think_answer_near": 1, "think_answer_lines": 1, "tag_line_count": 1}, {})
    assert parts["think_answer_near"] == [pytest.approx(near)]
    assert (parts["think_answer_lines"], parts["tag_line_count"]) == ([lines], [tag_lines])


def test_length_penalties():
    batch = outputs(["a"] * 4, lengths=[1, 80, 90, 100])
    _, parts = compose(batch, {"overlong": 1.0, "truncated": -0.5}, {})
    assert parts["overlong"] == pytest.approx([0.0, 0.0, -0.5, -1.0])
    assert parts["truncated"] == [0.0, 0.0, 0.0, 1.0]


def dapo(length, limit, cache):
    """The three cases of the paper, written out."""
    if length <= limit - cache:
        return 0.0
    return ((limit - cache) - length) / cache if length <= limit else -1.0


@pytest.mark.parametrize("cache", [None, 4096, 1000, 20480])
def test_the_overlong_part_is_dapos_and_its_cache_is_in_tokens(cache):
    lengths = [0, 100, 16384, 16385, 18432, 19999, 20480, 30000]
    batch = dataclasses.replace(outputs(["a"] * 8, lengths=lengths, max_length=20480), overlong_cache_length=cache)
    rewards, parts = compose(batch, {"correctness": 1.0, "overlong": 2.0}, {})
    expected = [dapo(length, 20480, cache or 4096) for length in lengths]
    assert parts["overlong"] == pytest.approx(expected)
    assert rewards == pytest.approx([1.0 + 2.0 * penalty for penalty in expected])
    assert batch.correct == [True] * 8


def test_functions_of_the_users_are_parts_and_their_none_adds_nothing():
    rewards, parts = compose(
        outputs(["ab", ""], [True, True]), {"correctness": 1.0, "brevity": 2.0}, {"brevity": "my_rewards:brevity"}
    )
    assert rewards == [2.0, 1.0]
    assert parts["brevity"][0] == 0.5
    assert math.isnan(parts["brevity"][1])


def test_mistakes_are_named():
    with pytest.raises(UserError, match="unknown reward set 'pods': "):
        weights_of("pods")
    with pytest.raises(UserError, match="did you mean 'correctness'"):
        compose(outputs(["a"]), {"corectness": 1.0}, {})
    assert {"correctness", "overlong", "truncated"} <= set(PARTS)
