"""The user's reward functions, named "module:function", with the signature of TRL's.

def brevity(prompts, completions, completion_ids, **columns):  # lists with one entry a completion
    return [1.0 if len(c) < 200 else None for c in completions]  # None: says nothing about this one

`columns` holds every column of the data set, and `lengths` (in tokens), `gold` and `kind`; where a column has one of
these names, or that of an argument above, the function gets what the name means here. The function may be a
coroutine. As a task it is called with one output at a time, and an output is correct if its value is 1 or more.
"""

import asyncio
import functools
import inspect
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pods_jax.errors import UserError, raised
from pods_jax.registry import load_named
from pods_jax.rewards.verdict import VERIFIERS, Verdict, Verifier, compared, no_answer

RewardFunction = Callable[..., Sequence[float | None]]


@functools.cache
def load_function(name: str) -> RewardFunction:
    """The function that "module:function" names.

    Raises:
      UserError: there is no such module or function.
    """
    return load_named(name, f"reward function '{name}'", "module:function")


def call(name: str, completions: Sequence[str], /, **columns: Sequence[Any]) -> list[float]:
    """The function's value for each completion; NaN where it returns None.

    Raises:
      UserError: it raises, or does not return a finite number or None for each completion.
    """
    try:
        result = _result(name, completions, columns)
    except Exception as error:
        raise UserError(f"reward function '{name}' raised {raised(error)}") from error
    return _values(name, result, len(completions))


def check_function(name: str, gold: str, columns: Mapping[str, Any]) -> None:
    """Calls the function once, with the gold as the completion. columns: one example's, by name.

    Raises:
      UserError: as in `call`.
    """
    row = {"prompts": "", "completion_ids": [], "lengths": 0, "last_turns": gold, "kind": ""}
    row |= dict(columns) | {"gold": gold}
    call(name, [gold], **{column: [value] for column, value in row.items()})


def _result(name: str, completions: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> Any:
    result = load_function(name)(**{**columns, "completions": list(completions)})
    return _awaited(result) if inspect.isawaitable(result) else result


def _awaited(result: Any) -> Any:
    async def wait() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    with ThreadPoolExecutor(1) as thread:  # a notebook's thread already runs an event loop
        return thread.submit(asyncio.run, wait()).result()


def _values(name: str, result: Any, count: int) -> list[float]:
    try:
        values = None if isinstance(result, str | bytes | Mapping | Set) else list(result)
    except TypeError:
        values = None
    if values is None:
        raise UserError(f"reward function '{name}' gave {_shown(result)}, expected a list with a number a completion")
    if len(values) != count:
        raise UserError(f"reward function '{name}' gave {len(values)} values for {count} completions")
    if strange := [value for value in values if value is not None and not _is_finite(value)]:
        raise UserError(f"reward function '{name}' gave {_shown(strange[0])}, expected a finite number or None")
    return [math.nan if value is None else float(value) for value in values]


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last from tensors of several elements
        return False


def _shown(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return f"a very large {type(value).__name__}"


@functools.cache
def find_verifier(task: str) -> Verifier:
    """The verifier of a task: a registered one, or a user's function, by which 1 or more is correct."""
    if ":" not in task:
        return VERIFIERS[task]

    def verify(output: str, gold: str, columns: Mapping[str, Any] | None = None) -> Verdict:
        row = dict(columns or {}) | {"gold": gold}
        result = _result(task, [output], {name: [value] for name, value in row.items()})
        [value] = _values(task, result, 1)
        return no_answer() if math.isnan(value) else compared(value >= 1.0, output)

    return Verifier(verify, prepare=lambda: load_function(task) and None, takes_columns=True)
