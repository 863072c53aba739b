"""Verifiable rewards: is an output right, and does it have the required form?

Nothing here imports JAX. No output raises an exception, and none is run as code. A new task is one file in
`verifiers/`, where every file is imported:

    from pods_jax.rewards.verdict import Verdict, register

    @register("my_task")
    def verify(output: str, gold: str) -> Verdict: ...
"""

import functools
import os
from collections.abc import Mapping
from typing import Any

from pods_jax.errors import UserError
from pods_jax.fields import shown
from pods_jax.registry import import_submodules
from pods_jax.rewards.callables import check_function, find_verifier
from pods_jax.rewards.extract import final_answer
from pods_jax.rewards.format import FORMATS
from pods_jax.rewards.pool import RewardPool
from pods_jax.rewards.verdict import VERIFIERS, Verdict, register

__all__ = ["FORMATS", "VERIFIERS", "RewardPool", "Verdict", "check_gold", "final_answer", "register", "verify"]

import_submodules(__name__, skip=("worker",))  # the main module of the worker processes


def verify(output: str, gold: str, task: str) -> bool:
    """Whether a model's output is right. Its time is bounded, and no output makes it raise.

    Args:
      output: everything that the model wrote, including its reasoning.
      gold: the text with which the task's verifier compares.
      task: a name in `VERIFIERS`, or "module:function" (see `callables`).

    Raises:
      UserError: for an unknown task, a gold that its verifier cannot use, or an output or gold that is no text.
    """
    for name, value in (("output", output), ("gold", gold)):
        if not isinstance(value, str):
            raise UserError(f"{name} must be a text, got {shown(value)}")
    return _shared_pool(os.getpid()).score([output], [gold], task)[0].correct


def check_gold(gold: str, task: str, columns: Mapping[str, Any] | None = None) -> None:
    """Raises a UserError if the gold cannot be used for the task, or does not equal itself. Its time is bounded.

    If the task is a user's function, it is called once for all golds, with the gold as the completion and the example's
    `columns`.
    """
    verifier = find_verifier(task)
    if not verifier.takes_columns:
        verifier.check(gold)
    elif task not in _checked_functions:
        check_function(task, gold, columns or {})
        _checked_functions.add(task)


_checked_functions: set[str] = set()


@functools.cache
def _shared_pool(process_id: int) -> RewardPool:
    """The pool of this process: a forked child cannot use its parent's."""
    return RewardPool(num_workers=1)
