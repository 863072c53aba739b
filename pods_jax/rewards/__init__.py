"""Verifiable rewards: is this output right, and has it the form that was asked for?

Nothing here imports JAX, raises on what a model wrote, or runs it. A new task is one file in
`verifiers/`, all of which are imported:

    from pods_jax.rewards.verdict import Verdict, register

    @register("my_task")
    def judge(output: str, gold: str) -> Verdict: ...
"""

import functools

from pods_jax.registry import import_submodules
from pods_jax.rewards.callables import find_verifier
from pods_jax.rewards.extract import final_answer
from pods_jax.rewards.format import FORMATS
from pods_jax.rewards.pool import RewardPool
from pods_jax.rewards.verdict import VERIFIERS, Verdict, register

__all__ = ["FORMATS", "VERIFIERS", "RewardPool", "Verdict", "check_gold", "final_answer", "register", "verify"]

import_submodules(__name__, skip=("worker",))  # it is the main module of its processes


def verify(output: str, gold: str, task: str) -> bool:
    """Whether a model's output is right; bounded in time, and no output makes it raise.

    Args:
      output: everything that the model wrote, reasoning included.
      gold: what the task's verifier compares with.
      task: a name in `VERIFIERS`, or "module:function" (see `callables`).

    Raises:
      UserError: for an unknown task or a gold that its verifier cannot use.
    """
    return _shared_pool().score([output], [gold], task)[0].correct


def check_gold(gold: str, task: str) -> None:
    """Raises a UserError if the gold cannot be used for the task, or does not equal itself. Bounded in time."""
    find_verifier(task).check(gold)


@functools.cache
def _shared_pool() -> RewardPool:
    return RewardPool(num_workers=1)
