"""Outcomes of a group's rollouts, which are all that allocators decide by.

A rollout takes part if its correctness and its reward are finite: one whose reward is not has no advantage, so it can
not make a group worth training on either.
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
      total: successes, or rewards in sum; count: rollouts that take part.
      variance: the population variance of what is summed; 0 if none takes part.
      varies: whether the criterion's values differ, exactly (max > min): no tolerance, no deviation near zero.
    """

    total: float
    count: int
    variance: float
    varies: bool

    def reaches(self, rate: Fraction) -> bool:
        """Whether total / count >= rate, exactly; False if none takes part."""
        return self.count > 0 and self.total >= rate * self.count


def by_correctness(group: Group) -> np.ndarray:
    """Raw correctness [n]: a length penalty or a bonus for the format can not make a group vary."""
    return np.asarray(group.correct, float)


def by_reward(group: Group) -> np.ndarray:
    """The rewards [n] that the advantage sees."""
    return np.asarray(group.rewards, float)


CRITERIA: Mapping[str, Callable[[Group], np.ndarray]] = {"correctness": by_correctness, "reward": by_reward}


def values_of(group: Group, criterion: str) -> np.ndarray:
    """[n] the criterion's value of each rollout; NaN for one that takes no part."""
    finite = np.isfinite(by_correctness(group)) & np.isfinite(by_reward(group))
    return np.where(finite, CRITERIA[criterion](group), np.nan)


def taking_part(group: Group, criterion: str) -> np.ndarray:
    """[k] the values of the rollouts that take part."""
    values = values_of(group, criterion)
    return values[~np.isnan(values)]


def outcome_of(group: Group, criterion: str = "correctness") -> Outcome:
    """The outcome by "correctness", of which 1 is a success and less is none, or by "reward".

    Success rates and their thresholds are for rewards between 0 and 1, so a reward below or above counts as 0 or 1 in
    the total and the variance; whether rewards vary is seen before that.
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
    """A candidate's class where all that vary pass.

    Returns "passed", "too_easy" or "too_hard" by the side of 1/2 that equal values lie on, or "invalid" where no
    rollout takes part.
    """
    if not outcome.count:
        return "invalid"
    if outcome.varies:
        return "passed"
    return "too_easy" if outcome.reaches(Fraction(1, 2)) else "too_hard"


def class_within(outcome: Outcome, p_lower: float, p_upper: float) -> str:
    """A candidate's class where p_lower <= success rate <= p_upper passes, exactly (see `exact`).

    Returns "passed", "too_easy", "too_hard", or "invalid" where no rollout takes part: such a one never passes.
    """
    if not outcome.count:
        return "invalid"
    if not outcome.reaches(exact(p_lower)):
        return "too_hard"
    return "too_easy" if outcome.total > exact(p_upper) * outcome.count else "passed"


@functools.cache
def exact(p: float) -> Fraction:
    """A threshold is the decimal that was written, not the binary number nearest to it: 0.1 lets 1 of 10 pass."""
    return Fraction(repr(float(p)))


def counts_within(p_lower: float, p_upper: float, n: int) -> tuple[int, int]:
    """The smallest and largest count of successes in n with p_lower <= count / n <= p_upper, exactly."""
    return math.ceil(exact(p_lower) * n), math.floor(exact(p_upper) * n)
