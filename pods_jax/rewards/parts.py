"""Rewards as weighted sums of named parts: `compose` adds them up, and keeps each part for the log.

A part is a name in `PARTS`, a format in `FORMATS`, or a user's function (see `callables`).
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pods_jax.errors import UserError
from pods_jax.registry import Registry, nearest
from pods_jax.rewards.callables import call, check_function
from pods_jax.rewards.format import FORMATS

REWARD_SETS: Mapping[str, Mapping[str, float | int]] = {
    "correctness": {"correctness": 1.0},
    # The two of Xu et al. 2025 (arXiv 2504.13818, released code); single-device with task "pods_lenient".
    "pods_single_device": {"correctness": 1.0, "think_answer_near": 0.1, "tag_count": 0.1},
    "pods_multi_device": {"correctness": 1.0, "think_answer_lines": 1.0, "tag_line_count": 1.0},
}
"""Named sets of parts, with the weight of each part."""


@dataclasses.dataclass(frozen=True)
class Outputs:
    """A batch of R verified completions; every sequence has R entries.

    Attributes:
      texts: the completions; completion_ids: their token ids.
      last_turns: the last turn of each completion, which verifiers and formats read; None: completions have one turn.
      lengths: their lengths in tokens; max_length: the limit of these.
      columns: the fields of their examples by name: "prompts", "gold", "kind", and every column of the data set.
      correct: raw correctness.
      truncated: whether the limit cut the completion.
      environment_rewards: what each one's environment gave in all; empty without one.
      prefill: beginning of the output that the prompts' template wrote (see `extract.prefill`); formats read it too.
      overlong_cache_length: number of tokens before the limit over which `overlong` falls; None: a fifth of the limit.
    """

    texts: Sequence[str]
    completion_ids: Sequence[Sequence[int]]
    columns: Mapping[str, Sequence[Any]]
    correct: Sequence[bool]
    lengths: Sequence[int]
    truncated: Sequence[bool]
    max_length: int
    last_turns: Sequence[str] | None = None
    environment_rewards: Sequence[float] = ()
    prefill: str = ""
    overlong_cache_length: int | None = None

    @property
    def as_read(self) -> list[str]:
        """The outputs as verifiers and formats read them, with the prefill."""
        return [self.prefill + text for text in self._last_turns]

    def arguments(self) -> dict[str, Sequence[Any]]:
        """The arguments of a user's function, beside the completions."""
        own = {"completion_ids": self.completion_ids, "lengths": self.lengths, "last_turns": self._last_turns}
        return dict(self.columns) | own

    def take(self, rows: Sequence[int]) -> "Outputs":
        """A batch of only these rows."""

        def own(values: Sequence[Any] | None) -> Sequence[Any] | None:
            return values and [values[row] for row in rows]

        names = ("texts", "completion_ids", "correct", "lengths", "truncated", "last_turns", "environment_rewards")
        columns = {name: own(values) for name, values in self.columns.items()}
        return dataclasses.replace(self, columns=columns, **{name: own(getattr(self, name)) for name in names})

    @property
    def _last_turns(self) -> Sequence[str]:
        return self.texts if self.last_turns is None else self.last_turns


NORMALIZE_EPSILON = 1e-4

PARTS: Registry[Callable[[Outputs], list[float]]] = Registry("reward part")


@PARTS.register("correctness")
def correctness(outputs: Outputs) -> list[float]:
    """1 for a correct output."""
    return [float(correct) for correct in outputs.correct]


@PARTS.register("environment")
def environment(outputs: Outputs) -> list[float]:
    """The sum of the rewards that the environment gave to the turns (see `pods_jax.environments`)."""
    return [float(reward) for reward in outputs.environment_rewards]


@PARTS.register("truncated")
def truncated(outputs: Outputs) -> list[float]:
    """1 for a completion that the length limit cut; its weight should be negative."""
    return [float(cut) for cut in outputs.truncated]


@PARTS.register("overlong")
def overlong(outputs: Outputs) -> list[float]:
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv 2503.14476, eq. 13): 0, falling to -1 near the limit.

    It falls linearly over the last `overlong_cache_length` tokens; a fifth of the limit is the paper's 4,096 of 20,480.
    """
    cache = outputs.overlong_cache_length or outputs.max_length / 5
    free = outputs.max_length - cache
    return [-min(1.0, max(0.0, length - free) / cache) for length in outputs.lengths]


def weights_of(parts: Any) -> Mapping[str, float | int]:
    """The weights of a named set, or the given weights themselves (a dict, a ConfigDict, or the like).

    Raises:
      UserError: the named set is unknown.
    """
    if not isinstance(parts, str):
        return dict(parts)
    if parts not in REWARD_SETS:
        raise UserError(f"unknown reward set '{parts}': {nearest(parts, REWARD_SETS)}")
    return REWARD_SETS[parts]


def compose(
    outputs: Outputs, weights: Mapping[str, float | int], functions: Mapping[str, str]
) -> tuple[list[float], dict[str, list[float]]]:
    """The rewards [R], and the unweighted parts [R] by name.

    A part is NaN where a user's function returns None, and then adds nothing. A completion for which all weighted parts
    are NaN has the reward NaN, and so leaves its group, as in TRL.

    Args:
      outputs: the batch of verified completions.
      weights: the weight of each part; parts of weight 0 are only logged.
      functions: "module:function" of each part that is a user's function.

    Raises:
      UserError: a part is unknown, or a function does not follow the rules in `callables`.
    """
    parts = {name: _part(name, outputs, functions) for name in weights}
    columns = [[weight * value for value in parts[name]] for name, weight in weights.items() if weight]
    rows = zip(*columns, strict=True) if columns else [(0.0,)] * len(outputs.texts)
    return [_sum(row) for row in rows], parts


def _sum(values: Sequence[float]) -> float:
    said = [value for value in values if not math.isnan(value)]
    return sum(said) if said else math.nan


def normalize_then_sum(parts: Mapping[str, Sequence[float]], weights: Mapping[str, float | int]) -> list[float]:
    """Rewards [n] of a group: the weighted sum of parts that are normalised by their means and deviations.

    GDPO (Liu et al. 2026, arXiv 2601.05242): a part of large spread does not drown one of small spread. As in TRL, 1e-4
    is added to the deviation (ddof 1). The paper also divides the sum by the batch's deviation: scale_rewards="batch".
    NaN is treated as in `compose`.

    Args:
      parts: the parts [n] by name.
      weights: the weight of each part.
    """
    columns = [[weight * value for value in _normalized(parts[name])] for name, weight in weights.items() if weight]
    rows = zip(*columns, strict=True) if columns else [(0.0,)] * len(next(iter(parts.values())))
    return [_sum(row) for row in rows]


def _normalized(values: Sequence[float]) -> list[float]:
    said = [float(value) for value in values if not math.isnan(value)]
    mean = statistics.fmean(said) if said else 0.0
    deviation = statistics.stdev(said, mean) if len(said) > 1 else 0.0
    return [(float(value) - mean) / (deviation + NORMALIZE_EPSILON) for value in values]


def check_functions(functions: Mapping[str, str], gold: str, columns: Mapping[str, Any]) -> None:
    """Calls each of the user's functions once, on one example. UserError if one does not follow `callables`."""
    for name in functions.values():
        check_function(name, gold, columns)


def _part(name: str, outputs: Outputs, functions: Mapping[str, str]) -> list[float]:
    if name in functions:
        return call(functions[name], outputs.texts, **outputs.arguments())
    if name in FORMATS:
        return [FORMATS[name](output) for output in outputs.as_read]
    return PARTS[name](outputs)
