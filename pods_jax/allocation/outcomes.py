"""What a group's raw correctness says: the only thing that allocators filter on, never the shaped reward.

A rollout takes part if its correctness and its reward are finite: one whose reward is not has no advantage, so it can
not make a group worth training on either.
"""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pods_jax.groups import Group


class Tally(NamedTuple):
    """successes of the `taking_part` rollouts of a group."""

    successes: int
    taking_part: int

    @property
    def variance(self) -> float:
        """p (1 - p) of the success rate p; 0 if none takes part."""
        return self.successes * (self.taking_part - self.successes) / max(self.taking_part, 1) ** 2


def values_taking_part(group: Group) -> np.ndarray:
    """[k] the correctness of the rollouts that take part, as floats."""
    correct = np.asarray(group.correct, float)
    return correct[np.isfinite(correct) & np.isfinite(group.rewards)]


def tally(group: Group) -> Tally:
    """A success is a correctness of 1."""
    values = values_taking_part(group)
    return Tally(int((values >= 1).sum()), len(values))


def varies(group: Group) -> bool:
    """Whether correctness differs between rollouts, exactly (max > min): no tolerance, no deviation near zero."""
    values = values_taking_part(group)
    return len(values) > 0 and bool(values.max() > values.min())


def classify(outcome: Tally, band: tuple[int, int]) -> str:
    """A candidate's class by its count of successes and the inclusive band of counts that pass.

    Returns "passed", "too_easy", "too_hard", or "invalid" where no rollout takes part: such a one never passes.
    """
    if not outcome.taking_part:
        return "invalid"
    lowest, highest = band
    return "too_hard" if outcome.successes < lowest else "too_easy" if outcome.successes > highest else "passed"


@functools.cache
def counts_within(p_lower: float, p_upper: float, n: int) -> tuple[int, int]:
    """The smallest and largest count of successes in n with p_lower <= count / n <= p_upper, exactly.

    A threshold is the decimal that was written, not the binary number nearest to it: 0.1 lets 1 of 10 pass.
    """
    return math.ceil(_exact(p_lower) * n), math.floor(_exact(p_upper) * n)


def _exact(p: float) -> Fraction:
    return Fraction(repr(float(p)))
