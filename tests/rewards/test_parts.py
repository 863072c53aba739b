import dataclasses
import math

import my_rewards
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards.parts import PARTS, REWARD_SETS, Outputs, compose, normalize_then_sum, weights_of

PERFECT = "<think>\na\n</think>\n<answer>\n5\n</answer>"
TEXTS = st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "\n", "x", " "]), max_size=14).map(
    "".join
)


def outputs(texts, correct=None, lengths=None, max_length=100) -> Outputs:
    n = len(texts)
    lengths = lengths or [1] * n
    return Outputs(
        texts=texts, completion_ids=[[7]] * n, correct=correct or [True] * n,
        columns={"prompts": ["p"] * n, "gold": ["5"] * n, "kind": ["k"] * n, "target": list(range(n))},
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


def test_functions_get_trls_arguments_and_every_column():
    my_rewards.SEEN.clear()
    compose(outputs(["ab", "c"]), {"brevity": 1.0}, {"brevity": "my_rewards:brevity"})
    assert my_rewards.SEEN == {
        "prompts": ["p"] * 2, "gold": ["5"] * 2, "kind": ["k"] * 2, "target": [0, 1], "completion_ids": [[7]] * 2,
        "lengths": [1, 1], "last_turns": ["ab", "c"],
    }  # fmt: skip


def test_a_completion_of_which_no_part_says_anything_has_no_reward():
    functions = {"brevity": "my_rewards:brevity"}
    batch = outputs(["ab", ""], [True, True])
    for weights in ({"brevity": 2.0}, {"correctness": 0.0, "brevity": 2.0}):
        rewards, _ = compose(batch, weights, functions)
        assert rewards[0] == 1.0
        assert math.isnan(rewards[1])
    assert compose(batch, {"brevity": 0.0}, functions)[0] == [0.0, 0.0]


def test_a_prefilled_thought_counts_for_the_form():
    batch = outputs(["a</think><answer>5</answer>"])
    weights = {"think_answer": 1.0, "tag_count": 1.0, "think_answer_near": 1.0}
    assert compose(batch, weights, {})[0] != [3.0]
    assert compose(dataclasses.replace(batch, prefill="<think>\n"), weights, {})[0] == [3.0]


def trl_normalize_then_sum(parts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The lines of TRL's GRPOTrainer for one group; parts [n, k], float64."""
    mean = np.nanmean(parts, axis=0, keepdims=True)
    std = np.nanstd(parts, axis=0, ddof=1, keepdims=True)
    total = np.nansum((parts - mean) / (std + 1e-4) * weights, axis=1)
    return np.where(np.isnan(parts).all(1), np.nan, total)


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 4))
def test_normalize_then_sum_is_trls(seed, n, k):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3, (n, k)) * 10.0 ** rng.integers(-2, 3, k)
    values[rng.random((n, k)) < 0.2] = np.nan
    values[:2] = 1.0  # two at least say something, as TRL's own nanstd needs
    weights = rng.normal(size=k)
    parts = {str(i): values[:, i].tolist() for i in range(k)}
    ours = normalize_then_sum(parts, {str(i): float(w) for i, w in enumerate(weights)})
    np.testing.assert_allclose(ours, trl_normalize_then_sum(values, weights), rtol=1e-9, atol=1e-9)


def test_normalize_then_sum_gives_each_part_its_say():
    """In the plain sum the large part would drown the small one."""
    parts = {"small": [0.0, 0.01, 0.0, 0.01], "large": [0.0, 0.0, 100.0, 100.0]}
    rewards = normalize_then_sum(parts, {"small": 1.0, "large": 1.0})
    assert rewards[3] - rewards[2] == pytest.approx(rewards[2] - rewards[0], rel=0.02)


def test_mistakes_are_named():
    with pytest.raises(UserError, match="unknown reward set 'pods': "):
        weights_of("pods")
    with pytest.raises(UserError, match="did you mean 'correctness'"):
        compose(outputs(["a"]), {"corectness": 1.0}, {})
    assert {"correctness", "overlong", "truncated"} <= set(PARTS)
