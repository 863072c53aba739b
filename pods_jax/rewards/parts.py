"""A reward is a weighted sum of named parts: `compose` adds them up and keeps each for the log.

A part is a name in `PARTS`, a format in `FORMATS`, or a function of the user's (see `callables`).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pods_jax.errors import UserError
from pods_jax.registry import Registry, nearest
from pods_jax.rewards.callables import call
from pods_jax.rewards.format import FORMATS

REWARD_SETS: Mapping[str, Mapping[str, float | int]] = {
    "correctness": {"correctness": 1.0},
    # The two of Xu et al. 2025 (arXiv 2504.13818, released code); single-device with task "pods_lenient".
    "pods_single_device": {"correctness": 1.0, "think_answer_near": 0.1, "tag_count": 0.1},
    "pods_multi_device": {"correctness": 1.0, "think_answer_lines": 1.0, "tag_line_count": 1.0},
}
"""Weights by part, by name."""


@dataclasses.dataclass(frozen=True)
class Outputs:
    """A batch of R verified outputs; every sequence has R entries.

    Attributes:
      texts, prompts, golds, kinds: the output, and the fields of its example.
      correct: raw correctness.
      lengths: in tokens; max_length: their limit. truncated: whether the limit cut the output.
      overlong_cache_length: over how many tokens before the limit `overlong` falls; None: a fifth of the limit.
    """

    texts: Sequence[str]
    prompts: Sequence[str]
    golds: Sequence[str]
    kinds: Sequence[str]
    correct: Sequence[bool]
    lengths: Sequence[int]
    truncated: Sequence[bool]
    max_length: int
    overlong_cache_length: int | None = None


PARTS: Registry[Callable[[Outputs], list[float]]] = Registry("reward part")


@PARTS.register("correctness")
def correctness(outputs: Outputs) -> list[float]:
    """1 for a correct output."""
    return [float(correct) for correct in outputs.correct]


@PARTS.register("truncated")
def truncated(outputs: Outputs) -> list[float]:
    """1 for an output that the length limit cut; give it a negative weight."""
    return [float(cut) for cut in outputs.truncated]


@PARTS.register("overlong")
def overlong(outputs: Outputs) -> list[float]:
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv 2503.14476, eq. 13): 0, and near the limit down to -1.

    Linear over the last `overlong_cache_length` tokens; a fifth of the limit is the paper's 4,096 of 20,480.
    """
    cache = outputs.overlong_cache_length or outputs.max_length / 5
    free = outputs.max_length - cache
    return [-min(1.0, max(0.0, length - free) / cache) for length in outputs.lengths]


def weights_of(parts: Any) -> Mapping[str, float | int]:
    """The weights of a named set, or those that are given (in anything with keys and items, such as a ConfigDict).

    Raises:
      UserError: for an unknown set.
    """
    if not isinstance(parts, str):
        return dict(parts)
    if parts not in REWARD_SETS:
        raise UserError(f"unknown reward set '{parts}': {nearest(parts, REWARD_SETS)}")
    return REWARD_SETS[parts]


def compose(
    outputs: Outputs, weights: Mapping[str, float | int], functions: Mapping[str, str]
) -> tuple[list[float], dict[str, list[float]]]:
    """The rewards [R], and the parts [R] by name, unweighted; NaN where a function says nothing, which adds nothing.

    Args:
      outputs: what is rewarded.
      weights: by part; parts of weight 0 are only logged.
      functions: "module:function" by part, for the parts that are functions of the user's.

    Raises:
      UserError: for an unknown part, or a function that does not do what `callables` says.
    """
    parts = {name: _part(name, outputs, functions) for name in weights}
    rewards = [
        sum(weight * parts[name][place] for name, weight in weights.items() if not math.isnan(parts[name][place]))
        for place in range(len(outputs.texts))
    ]
    return rewards, parts


def _part(name: str, outputs: Outputs, functions: Mapping[str, str]) -> list[float]:
    if name in functions:
        columns = {"prompts": list(outputs.prompts), "gold": list(outputs.golds), "kind": list(outputs.kinds)}
        return call(functions[name], outputs.texts, **columns)
    if name in FORMATS:
        return [FORMATS[name](text) for text in outputs.texts]
    return PARTS[name](outputs)
