"""What a run spent until it was good enough: rollouts, tokens or training seconds to a target accuracy."""

from collections.abc import Mapping, Sequence
from statistics import fmean

Evals = Sequence[Mapping[str, int | float]]
"""The lines of an eval.jsonl, in order of steps."""


def rollouts_to_target(evals: Evals, target: float, *, metric: str = "accuracy", window: int = 1) -> float | None:
    """All rollouts generated, trained on or not, up to the first evaluation at or above the target.

    This is how the Pilot-Commit paper counts (Kim et al. 2026, arXiv 2605.26606), so the evaluations' spacing limits
    its resolution.

    Args:
      target: in the metric's unit; shares are in 0..1.
      metric: a key of the evaluations.
      window: the target is asked of the mean of the last so many evaluations, fewer at the start: of nothing that
        came after the cost was paid.

    Returns:
      None if the target was never reached: all that is known is that it takes more than the run spent.
    """
    return _at_target(evals, target, "rollouts/generated", metric, window)


def tokens_to_target(evals: Evals, target: float, *, metric: str = "accuracy", window: int = 1) -> float | None:
    """Generated tokens, as `rollouts_to_target`: rollouts need not cost the same."""
    return _at_target(evals, target, "tokens/generated", metric, window)


def time_to_target(evals: Evals, target: float, *, metric: str = "accuracy", window: int = 1) -> float | None:
    """Seconds of training, evaluation and compilation excluded, as `rollouts_to_target`."""
    return _at_target(evals, target, "wall_time_s", metric, window)


def _at_target(evals: Evals, target: float, cost: str, metric: str, window: int) -> float | None:
    values = [e[metric] for e in evals]
    latest = (values[max(0, i + 1 - window) : i + 1] for i in range(len(values)))
    return next((float(e[cost]) for e, some in zip(evals, latest, strict=True) if fmean(some) >= target), None)
