"""The parts of a completion that verifiers, formats and functions of the user's are given."""

import types

import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from pods_jax.config.schema import RewardConfig
from pods_jax.data import Example
from pods_jax.groups import Prompt
from pods_jax.rewards import RewardPool
from pods_jax.rollout import Completions
from pods_jax.training.experience import Rewarder

TEXTS = {1: r"so \boxed{5} but", 2: r"so \boxed{6}</think>\boxed{5}"}
SEEN = {}


def see(prompts, completions, completion_ids, **columns):
    SEEN.update(columns, prompts=prompts, completions=completions, completion_ids=completion_ids)
    return [None, 1.0]


def completions() -> Completions:
    shape = (1, 2, 3)
    tokens = np.zeros(shape, int)
    tokens[0, :, 0] = 1, 2
    fields = {"tokens": tokens, "lengths": np.ones((1, 2), int), "truncated": np.zeros((1, 2), bool)}
    return Completions(**fields, **{name: None for name in Completions._fields if name not in fields})


@pytest.fixture
def rewarder():
    methods = {"decode": lambda ids: TEXTS[ids[0]], "encode_prompt": lambda *_: [], "absent_ids": lambda _: ()}
    methods["encode_observation"] = lambda *_: []
    tokenizer = types.SimpleNamespace(**methods, eos_ids=(0,), pad_id=0, vocab_size=9)
    example = Example("p", "5", "k", columns={"target": 7, "gold": "not this"})
    with RewardPool(1) as pool:

        def make(task: str, prefill: str, **reward) -> Rewarder:
            config = RewardConfig(**{name: FrozenConfigDict(value) for name, value in reward.items()})
            return Rewarder(config, tokenizer, task, pool, examples=(example,), prefill=prefill)

        yield make


PROMPT = Prompt(uid=3, index=0, text="p", gold="5", kind="k", tokens=(1,))


@pytest.mark.parametrize(("prefill", "correct"), [("", [True, True]), ("<think>\n", [False, True])])
def test_a_thought_that_the_prompt_opened_is_part_of_the_output(rewarder, prefill, correct):
    verified = rewarder("gsm8k", prefill, parts={"correctness": 1.0, "boxed_or_hash": 1.0})(completions(), [PROMPT])
    assert verified.correct.tolist() == correct
    assert verified.parts["boxed_or_hash"].tolist() == [float(c) for c in correct]
    assert verified.texts == list(TEXTS.values())


def test_functions_get_completions_as_they_are_and_every_column(rewarder):
    verified = rewarder("gsm8k", "<think>", parts={"f": 2.0}, functions={"f": f"{__name__}:see"})(
        completions(), [PROMPT]
    )
    assert {
        "prompts": ["p"] * 2, "completions": list(TEXTS.values()), "completion_ids": [[1], [2]], "lengths": [1, 1],
        "last_turns": list(TEXTS.values()),
        "gold": ["5"] * 2, "kind": ["k"] * 2, "target": [7, 7],
    } == SEEN  # fmt: skip
    np.testing.assert_array_equal(verified.rewards, np.array([np.nan, 2.0], np.float32))
