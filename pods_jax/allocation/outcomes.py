"""Outcomes of a group's rollouts: allocators decide by these only.

A rollout takes part if its correctness and its reward are finite. A rollout without a finite reward has no advantage,
so it can not make a group worth training on.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pods_jax.groups import Group, Prompt


class Outcome(NamedTuple):
    """The outcome of a group, over its rollouts that take part.

    Attributes:
      total: number of successes, or sum of rewards; count: number of rollouts that take part.
      variance: population variance of the summed values; 0 if no rollout takes part.
      varies: whether the criterion's values differ, by an exact comparison (max > min) without a tolerance.
    """

    total: float
    count: int
    variance: float
    varies: bool

    def reaches(self, rate: Fraction) -> bool:
        """Whether total / count >= rate, compared exactly; False if no rollout takes part."""
        return self.count > 0 and self.total >= rate * self.count


def by_correctness(group: Group) -> np.ndarray:
    """Raw correctness [n]: a length penalty or a bonus for the format can not make a group vary."""
    return np.asarray(group.correct, float)


def by_reward(group: Group) -> np.ndarray:
    """The rewards [n] that the advantage sees."""
    return np.asarray(group.rewards, float)


CRITERIA: Mapping[str, Callable[[Group], np.ndarray]] = {"correctness": by_correctness, "reward": by_reward}


def values_of(group: Group, criterion: str) -> np.ndarray:
    """[n] the criterion's value of each rollout; NaN for a rollout that takes no part."""
    finite = np.isfinite(by_correctness(group)) & np.isfinite(by_reward(group))
    return np.where(finite, CRITERIA[criterion](group), np.nan)


def taking_part(group: Group, criterion: str) -> np.ndarray:
    """[k] the values of the rollouts that take part."""
    values = values_of(group, criterion)
    return values[~np.isnan(values)]


def outcome_of(group: Group, criterion: str = "correctness") -> Outcome:
    """The outcome by "correctness", where only 1 is a success, or by "reward".

    Success rates and their thresholds are for rewards between 0 and 1. So a reward below 0 counts as 0, and one above 1
    as 1, in the total and the variance; `varies` compares the rewards as they are.
    """
    values = taking_part(group, criterion)
    if not len(values):
        return Outcome(0, 0, 0.0, varies=False)
    varies = bool(values.max() > values.min())
    if criterion == "correctness":
        count = len(values)
        total = int((values >= 1).sum())
        return Outcome(total, count, total * (count - total) / count**2, varies)
    held = values.clip(0, 1)
    return Outcome(float(held.sum()), len(held), float(held.var()), varies)


def success_rates(groups: Sequence[Group], criterion: str) -> tuple[list[Prompt], np.ndarray]:
    """The prompts of the groups in which a rollout takes part, and their success rates [k]."""
    outcomes = [(g.request.prompt, outcome_of(g, criterion)) for g in groups]
    seen = [(prompt, outcome.total / outcome.count) for prompt, outcome in outcomes if outcome.count]
    return [prompt for prompt, _ in seen], np.array([rate for _, rate in seen])


# ---------------------------------------------------------------- classes of candidates


def class_of_varying(outcome: Outcome) -> str:
    """The class of a candidate that passes if its outcomes vary.

    Returns "passed" if they vary; else "too_easy" for a success rate of at least 1/2 and "too_hard" for a lower one; or
    "invalid" if no rollout takes part.
    """
    if not outcome.count:
        return "invalid"
    if outcome.varies:
        return "passed"
    return "too_easy" if outcome.reaches(Fraction(1, 2)) else "too_hard"


def class_within(outcome: Outcome, p_lower: float, p_upper: float) -> str:
    """The class of a candidate that passes if p_lower <= success rate <= p_upper, compared exactly (see `exact`).

    Returns "passed", "too_easy", "too_hard", or "invalid" if no rollout takes part.
    """
    if not outcome.count:
        return "invalid"
    if not outcome.reaches(exact(p_lower)):
        return "too_hard"
    return "too_easy" if outcome.total > exact(p_upper) * outcome.count else "passed"


@functools.cache
def exact(p: float) -> Fraction:
    """A threshold as the decimal that was written, not as the nearest binary number: 1 of 10 reaches 0.1."""
    return Fraction(repr(float(p)))


def counts_within(p_lower: float, p_upper: float, n: int) -> tuple[int, int]:
    """The smallest and largest count of successes in n with p_lower <= count / n <= p_upper, exactly."""
    return math.ceil(exact(p_lower) * n), math.floor(exact(p_upper) * n)
