"""Reward functions of the user's, named "module:function", with the signature of TRL's.

def brevity(completions, gold, **columns):   # also: prompts, kind; lists with one entry a completion
    return [1.0 if len(c) < 200 else None for c in completions]   # None: says nothing about this one
"""

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import VERIFIERS, Verdict, Verifier, compared, no_answer

RewardFunction = Callable[..., Sequence[float | None]]


@functools.cache
def load_function(name: str) -> RewardFunction:
    """The function that "module:function" names.

    Raises:
      UserError: if there is no such module or function.
    """
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"reward function '{name}': expected module:function on the search path ({error})") from error
    if not callable(function):
        raise UserError(f"reward function '{name}' is not callable")
    return function


def call(name: str, completions: Sequence[str], **columns: Sequence[Any]) -> list[float]:
    """What the function says of each completion; NaN where it says None.

    Raises:
      UserError: if it does not give a finite number or None for each completion.
    """
    values = list(load_function(name)(completions=list(completions), **columns))
    if len(values) != len(completions):
        raise UserError(f"reward function '{name}' gave {len(values)} values for {len(completions)} completions")
    if strange := [value for value in values if value is not None and not _finite(value)]:
        raise UserError(f"reward function '{name}' gave {strange[0]!r}, expected a finite number or None")
    return [math.nan if value is None else float(value) for value in values]


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except TypeError:
        return False


@functools.cache
def find_verifier(task: str) -> Verifier:
    """The verifier of a task: a registered one, or a function of the user's, for which 1 or more is correct."""
    if ":" not in task:
        return VERIFIERS[task]

    def judge(output: str, gold: str) -> Verdict:
        [value] = call(task, [output], gold=[gold])
        return no_answer() if math.isnan(value) else compared(value >= 1.0, output)

    return Verifier(judge, prepare=lambda: load_function(task) and None)
