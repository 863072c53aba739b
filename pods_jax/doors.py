"""Checks of arguments for `select`, `group_advantages` and `generate`: each says what it wants.

A wrong shape would otherwise be an error deep inside, or a result that means nothing.
"""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pods_jax.errors import UserError
from pods_jax.fields import shown


def refuse_shapes(name: str, value: Any, axes: str, like: Any = None) -> None:
    """Raises a UserError unless an array has the axes, such as "P n", and the shape of `like` if that is given."""
    shape = np.shape(value) if not hasattr(value, "shape") else value.shape
    if len(shape) != len(axes.split()):
        raise UserError(f"{name} must have the axes [{', '.join(axes.split())}], got shape {list(shape)}")
    if like is not None and shape != like.shape:
        raise UserError(f"{name} must have the shape of the rewards, {list(like.shape)}, got {list(shape)}")


def refuse_group_arrays(rewards: Any, arrays: Mapping[str, Any]) -> None:
    """Raises a UserError unless rewards are numbers [P, n], and so are the arrays beside them; None stands for none."""
    if not hasattr(rewards, "dtype"):
        raise UserError(f"rewards must be an array [P, n], one row for each prompt, got {type(rewards).__name__}")
    refuse_shapes("rewards", rewards, "P n")
    if not jnp.issubdtype(rewards.dtype, jnp.floating):
        raise UserError(f"rewards must be floating-point numbers, got {rewards.dtype}: rewards.astype('float32')")
    for name, array in arrays.items():
        if array is not None:
            refuse_shapes(name, array, "P n", rewards)


def refuse_key(key: Any) -> None:
    """Raises a UserError unless it is a single key such as jax.random.key(0)."""
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()):
        raise UserError(f"key must be a single key such as jax.random.key(0), got {shown(key)}")


def refuse_prompts(prompts: Any, vocab_size: int) -> None:
    """Raises a UserError unless prompts are lists of ids below `vocab_size`, none of them empty."""
    if isinstance(prompts, str) or not isinstance(prompts, Sequence | np.ndarray) or not len(prompts):
        raise UserError(f"prompts must be a list of token id lists, one for each prompt, got {shown(prompts)}")
    for number, prompt in enumerate(prompts):
        if isinstance(prompt, str):
            raise UserError(f"prompts[{number}] is a text: tokenizer.encode_prompt(text) gives its token ids")
        if not isinstance(prompt, Sequence | np.ndarray) or not len(prompt):
            raise UserError(f"prompts[{number}] must be a list of token ids with at least one, got {shown(prompt)}")
        ids = np.asarray(prompt)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise UserError(f"prompts[{number}] must hold integers, got {ids.dtype}{list(ids.shape)}")
        if outside := ids[(ids < 0) | (ids >= vocab_size)].tolist():
            raise UserError(
                f"prompts[{number}] must hold token ids in 0..{vocab_size - 1} of the model, got {outside[0]}"
            )


def refuse_sampling(
    num_prompts: int, num_generations: Any, max_new_tokens: Any, temperature: Any, top_k: Any, top_p: Any,
    min_p: Any = 0.0, repetition_penalty: Any = 1.0,
) -> None:  # fmt: skip
    """Raises a UserError for numbers by which nothing can be sampled."""
    counts = [num_generations] if isinstance(num_generations, numbers.Integral) else num_generations
    least = 0 if counts is num_generations else 1
    if not isinstance(counts, Sequence | np.ndarray) or not all(_is_count(count, least) for count in counts):
        raise UserError(
            "num_generations must be a positive integer, or one of 0 or more for each prompt, got "
            f"{shown(num_generations)}"
        )
    if counts is num_generations and len(counts) != num_prompts:
        raise UserError(f"num_generations has {len(counts)} entries for {num_prompts} prompts")
    if not _is_count(max_new_tokens):
        raise UserError(f"max_new_tokens must be a positive integer, got {shown(max_new_tokens)}")
    if not 0 <= temperature < float("inf"):
        raise UserError(f"temperature must be 0 (the most probable tokens) or more, got {shown(temperature)}")
    if not isinstance(top_k, numbers.Integral) or top_k < 0:
        raise UserError(f"top_k must be an integer of 0 (all tokens) or more, got {shown(top_k)}")
    if not 0 < top_p <= 1:
        raise UserError(f"top_p must lie in (0, 1], got {shown(top_p)}")
    if not 0 <= min_p <= 1:
        raise UserError(f"min_p must lie in [0, 1], got {shown(min_p)}")
    if not 0 < repetition_penalty < float("inf"):
        raise UserError(f"repetition_penalty must be positive (1.0: none), got {shown(repetition_penalty)}")


def _is_count(value: Any, least: int = 1) -> bool:
    return isinstance(value, numbers.Integral) and bool(value >= least)
