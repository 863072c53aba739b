"""Answers of the completions API: what is right is read, and each field that is not is one line."""

import copy
import json

import numpy as np
import pytest
from made_server import EOS, choice

from pods_jax.errors import UserError
from pods_jax.rollout.completions_api import Limits, read_choices, request_body
from pods_jax.rollout.engine import SamplingParams

LIMITS = Limits(count=2, max_new_tokens=4, vocab_size=32, eos_ids=(EOS, 31))


def answer():
    return {"choices": [choice(0, [5, 6, EOS], [-0.5, -1.0, 0.0]), choice(1, [7, 8, 9, 10], [-1.0, -2, -3.0, -4.0])]}


def read(value):
    return read_choices(value, LIMITS, "server")


def test_token_ids_are_read():
    first, second = read(answer())
    assert first.tokens.tolist() == [5, 6, EOS]
    assert first.logprobs.tolist() == [-0.5, -1.0, 0.0]
    assert second.tokens.tolist() == [7, 8, 9, 10]
    assert (first.tokens.dtype, first.logprobs.dtype) == (np.int32, np.float32)


@pytest.mark.parametrize("value", [None, "absent"])
def test_tokens_as_ids_in_the_logprobs_are_read(value):
    raw = answer()
    for c in raw["choices"]:
        del c["token_ids"]
        if value is None:
            c["token_ids"] = None
    assert [c.tokens.tolist() for c in read(raw)] == [[5, 6, EOS], [7, 8, 9, 10]]


def test_choices_come_in_the_order_of_their_indices():
    raw = answer()
    raw["choices"].reverse()
    assert read(raw)[0].tokens.tolist() == [5, 6, EOS]
    for c in raw["choices"]:
        del c["index"]
    assert read(raw)[1].tokens.tolist() == [5, 6, EOS]


def test_a_completion_that_ends_at_the_limit_and_another_end():
    raw = answer()
    raw["choices"][0] = choice(0, [5, 6, 7, 31], [-1.0] * 4)
    assert read(raw)[0].tokens.tolist() == [5, 6, 7, 31]


def test_rounding_above_0_is_0():
    raw = answer()
    raw["choices"][0]["logprobs"]["token_logprobs"][1] = 1e-6
    assert read(raw)[0].logprobs[1] == 0


def changed(path, value):
    raw = copy.deepcopy(answer())
    *parents, name = path
    node = raw
    for parent in parents:
        node = node[parent]
    if value is KeyError:
        del node[name]
    else:
        node[name] = value
    return raw


FIRST = ("choices", 0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("choices",), KeyError, "no 'choices'"),
        (("choices",), {}, "choices = {} must be a list"),
        (("choices",), [], "0 choices for n = 2"),
        ((*FIRST, "index"), 1, r"indices \[1, 1\]"),
        ((*FIRST, "index"), 7, "indices"),
        ((*FIRST, "logprobs"), KeyError, "choice 0: no 'logprobs'"),
        ((*FIRST, "logprobs"), None, "choice 0: logprobs = None must be"),
        ((*FIRST, "logprobs", "token_logprobs"), KeyError, "no 'token_logprobs'"),
        ((*FIRST, "logprobs", "token_logprobs"), [-1.0, -1.0], "3 tokens and 2 log-probabilities"),
        ((*FIRST, "logprobs", "token_logprobs"), [-1.0, None, -1.0], "token_logprobs are"),
        ((*FIRST, "logprobs", "token_logprobs"), [-1.0, "x", -1.0], "token_logprobs are"),
        ((*FIRST, "logprobs", "token_logprobs"), [-1.0, [1], -1.0], "token_logprobs are"),
        ((*FIRST, "logprobs", "token_logprobs"), [-1.0, float("nan"), -1.0], "nan.* is no log-probability"),
        ((*FIRST, "logprobs", "token_logprobs"), [-1.0, float("-inf"), -1.0], "inf.* is no log-probability"),
        ((*FIRST, "logprobs", "token_logprobs"), [-1.0, 3.5, -1.0], "3.5.* is no log-probability"),
        ((*FIRST, "token_ids"), [], "token ids are"),
        ((*FIRST, "token_ids"), [5.5, 6, EOS], "token ids are"),
        ((*FIRST, "token_ids"), [True, True, True], "token ids are"),
        ((*FIRST, "token_ids"), [5, 32, EOS], "token ids 1 to 32 of 32"),
        ((*FIRST, "token_ids"), [5, -1, EOS], "token ids -1 to 5 of 32"),
        ((*FIRST, "token_ids"), [5, 10**30, EOS], "token ids"),
        ((*FIRST, "token_ids"), [5, 6, 7], r"reason 'stop'.*3 of 4 tokens, and no end-of-sequence token \[1, 31\]"),
        ((*FIRST, "token_ids"), [5, EOS, EOS], "1 tokens after the end-of-sequence token 1"),
        ((*FIRST,), choice(0, [5, 6, 7, 8, 9], [-1.0] * 5), "5 tokens for max_tokens = 4"),
        ((*FIRST,), choice(0, [5, 6, 7, 8, EOS], [-1.0] * 5), "5 tokens for max_tokens = 4"),
        ((*FIRST,), "text", "choices = "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(path, value, message):
    with pytest.raises(UserError, match=message) as error:
        read(changed(path, value))
    assert str(error.value).startswith("server: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [[], None, 3, "text"])
def test_an_answer_that_is_no_object_is_one_line(value):
    with pytest.raises(UserError, match="is no object"):
        read(value)


def test_tokens_as_text_are_no_ids():
    raw = answer()
    for c in raw["choices"]:
        del c["token_ids"]
    raw["choices"][1]["logprobs"]["tokens"][2] = " the\n"
    with pytest.raises(UserError, match="return_token_ids or return_tokens_as_token_ids") as error:
        read(raw)
    assert "\n" not in str(error.value)


def test_bodies_are_json():
    body = request_body("m", (3, 4), 2, SamplingParams(4, 0.0), (1,), (range(30, 32),), seed=5)
    assert json.loads(json.dumps(body)) == body
    assert (body["prompt"], body["seed"], body["temperature"], body["top_k"]) == ([3, 4], 5, 0.0, -1)
    assert "logit_bias" not in request_body("m", [3, 4], 2, SamplingParams(4), (1,))
