"""The errors of the library's public functions for arguments of a wrong shape, type or range."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.doors import refuse_group_arrays, refuse_key, refuse_prompts, refuse_sampling
from pods_jax.errors import UserError
from pods_jax.models import Decoder, ModelConfig
from pods_jax.rollout import generate
from pods_jax.selection import select

REWARDS = np.array([[0.0, 1.0, 0.5]], np.float32)
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("rewards", "arrays", "message"),
    [
        ([[0.0, 1.0]], {}, r"rewards must be an array \[P, n\], one row for each prompt, got list"),
        (REWARDS[0], {}, r"rewards must have the axes \[P, n\], got shape \[3\]"),
        (REWARDS.astype(int), {}, r"rewards must be floating-point numbers, got int64: rewards\.astype"),
        (
            REWARDS,
            {"valid": np.ones((3, 1), bool)},
            r"valid must have the shape of the rewards, \[1, 3\], got \[3, 1\]",
        ),
        (REWARDS, {"lengths": np.ones(3)}, r"lengths must have the axes \[P, n\], got shape \[3\]"),
    ],
    ids=str,
)
def test_arrays_of_groups(rewards, arrays, message):
    with pytest.raises(UserError, match=message):
        refuse_group_arrays(rewards, arrays)
    refuse_group_arrays(REWARDS, {"valid": None, "lengths": np.ones((1, 3), int)})


@pytest.mark.parametrize("key", [0, np.zeros(2, np.uint32), jax.random.split(KEY, 2), None], ids=str)
def test_keys(key):
    with pytest.raises(UserError, match=r"key must be a single key such as jax\.random\.key\(0\)"):
        refuse_key(key)
    refuse_key(KEY)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ("hello", "prompts must be a list of token id lists, one for each prompt, got 'hello'"),
        ([], r"prompts must be a list .* got \[\]"),
        (["hello"], r"prompts\[0\] is a text: tokenizer\.encode_prompt\(text\) gives its token ids"),
        ([1, 2], r"prompts\[0\] must be a list of token ids with at least one, got 1"),
        ([[1], []], r"prompts\[1\] must be a list of token ids with at least one, got \[\]"),
        ([[1, 8]], r"prompts\[0\] must hold token ids in 0\.\.7 of the model, got 8"),
        ([[-1]], r"in 0\.\.7 of the model, got -1"),
        ([[1.0]], r"prompts\[0\] must hold integers, got float64\[1\]"),
        ([[[1, 2]]], r"prompts\[0\] must hold integers, got int64\[1, 2\]"),
    ],
    ids=str,
)
def test_prompts(prompts, message):
    with pytest.raises(UserError, match=message):
        refuse_prompts(prompts, vocab_size=8)
    refuse_prompts([np.array([0, 7]), (1,), [2]], vocab_size=8)


GOOD = {"num_prompts": 2, "num_generations": 3, "max_new_tokens": 4, "temperature": 1.0, "top_k": 0, "top_p": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"num_generations": 0},
            "num_generations must be a positive integer, or one of 0 or more for each prompt, got 0",
        ),
        ({"num_generations": 2.0}, "num_generations must be a positive integer"),
        ({"num_generations": [1, -1]}, "num_generations must be a positive integer"),
        ({"min_p": 1.5}, r"min_p must lie in \[0, 1\], got 1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be positive"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty must be positive"),
        ({"num_generations": [1, 2, 3]}, "num_generations has 3 entries for 2 prompts"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a positive integer, got 0"),
        ({"temperature": -1.0}, r"temperature must be 0 \(the most probable tokens\) or more, got -1.0"),
        ({"temperature": float("nan")}, "temperature must be 0"),
        ({"top_k": -1}, r"top_k must be an integer of 0 \(all tokens\) or more, got -1"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
    ],
    ids=str,
)
def test_numbers_of_sampling(change, message):
    with pytest.raises(UserError, match=message):
        refuse_sampling(**GOOD | change)
    refuse_sampling(**GOOD | {"num_generations": [0, 2], "temperature": 0})


def test_the_doors_are_in_place():
    model = Decoder(ModelConfig(8, 16, 16, 1, 2, 1, 8))
    with pytest.raises(UserError, match=r"prompts\[0\] must hold token ids in 0\.\.7"):
        generate(model, {}, [[9]], num_generations=1, max_new_tokens=1, key=KEY)
    with pytest.raises(UserError, match="top_p must lie"):
        generate(model, {}, [[1]], num_generations=1, max_new_tokens=1, key=KEY, top_p=0.0)
    with pytest.raises(UserError, match="lengths must have the shape of the rewards"):
        select("shortest", jnp.array(REWARDS), 1, KEY, lengths=jnp.ones((1, 2), int))


def test_what_is_of_another_type_is_told_where_nothing_checks_types():
    """In a process of its own: annotations are checked in the tests' own."""
    code = """
import jax, numpy as np
from pods_jax.errors import UserError
from pods_jax.rewards import verify
from pods_jax.selection import select
rewards, key = np.zeros((1, 3), np.float32), jax.random.key(0)
for call in (
    lambda: select("random", rewards, "2", key),
    lambda: select("random", rewards, 2.0, key),
    lambda: verify("3", 3, task="math"),
    lambda: verify(None, "3", task="math"),
):
    try:
        call()
    except UserError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "num_kept must be an integer in 1..3, got '2'",
        "num_kept must be an integer in 1..3, got 2.0",
        "gold must be a text, got 3",
        "output must be a text, got None",
    ], done.stderr
