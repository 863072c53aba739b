"""Records of rollouts for samples.jsonl: what was generated, what it earned, what was kept."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pods_jax.learner.batch import Kept

SHOWN = 2
"""Rollouts shown of those that were kept, and of those that were dropped: the most and the least rewarded."""


def sample_record(step: int, kept: Sequence[Kept], reads: Callable[[str, str], str] | None) -> dict[str, Any]:
    """The first group that teaches anything, with an advantage that is not 0; or the first of all where none does.

    Args:
      step: the training step.
      kept: the step's groups, with the rows that are trained on.
      reads: writes out a prompt and an output for a person (see `Dataset.reads`).

    Returns:
      "step", "prompt", "gold" and "reads", how both are written out; "rewards" of all n rollouts, and "kept", the rows
      trained on; "rollouts", up to SHOWN of both sorts, with the keys of `_rollout`.
    """
    chosen = next((k for k in kept if np.any(k.advantages)), kept[0])
    group = chosen.group
    prompt = group.request.prompt
    rows = np.unique(chosen.rows)
    dropped = np.setdiff1d(np.arange(len(group.rewards)), rows)
    shown = [i for of_a_sort in (rows, dropped) for i in _extremes(of_a_sort, group.rewards)]
    return {
        "step": step,
        "prompt": prompt.text,
        "gold": prompt.gold,
        "reads": reads(prompt.text, prompt.gold) if reads else None,
        "rewards": group.rewards.tolist(),
        "kept": rows.tolist(),
        "rollouts": [_rollout(chosen, i, reads) for i in shown],
    }


def _extremes(rows: np.ndarray, rewards: np.ndarray) -> list[int]:
    """The SHOWN rows of the highest and lowest rewards in turn, the highest first; NaN is below all numbers."""
    order = rows[np.argsort(-np.nan_to_num(rewards[rows], nan=-np.inf), kind="stable")].tolist()
    if len(order) <= SHOWN:
        return order
    low = SHOWN // 2
    return [*order[: SHOWN - low], *order[len(order) - low :]]


def _rollout(kept: Kept, row: int, reads: Callable[[str, str], str] | None) -> dict[str, Any]:
    """A rollout: whether it was kept, its advantage (None if dropped), reward, parts, verdict, length and text."""
    group = kept.group
    (places,) = np.nonzero(kept.rows == row)
    return {
        "kept": bool(len(places)),
        "advantage": float(kept.advantages[places[0]]) if len(places) else None,
        "reward": float(group.rewards[row]),
        "parts": {name: float(values[row]) for name, values in group.parts.items()},
        "correct": bool(group.correct[row]),
        "reason": group.reasons[row] if group.reasons else "",
        "tokens": int(group.lengths[row]),
        "truncated": bool(group.truncated[row]),
        "completion": group.texts[row],
        "reads": reads(group.request.prompt.text, group.texts[row]) if reads else None,
    }
