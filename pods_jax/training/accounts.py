"""The accounts of a run: what was generated, and what became of it.

After every step, for rollouts and for tokens,

    generated = trained + discarded + buffered      generated = the sum over stages (plain, pilot, commit)

where `buffered` is what the allocator still holds, the only one that may fall. Evaluations never count. A rollout is
trained if it had a share in a loss, and counts once however often the update used it; all else is discarded: what
the allocator dropped, what selection left out, completions masked as truncated, rewards that are not finite.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pods_jax.records import Group

Totals = dict[str, float]


def new_totals() -> Totals:
    """All at 0."""
    names = [f"{unit}/{fate}" for unit in ("rollouts", "tokens") for fate in ("generated", "trained", "discarded")]
    return dict.fromkeys([*names, "rounds", "wall_time_s"], 0.0)


def count_generated(totals: Totals, groups: Sequence[Group]) -> None:
    """Books a round of rollouts, in all and by the stage of their requests, `rollouts/STAGE` and `tokens/STAGE`."""
    for group in groups:
        for unit, amount in _amounts(group.lengths).items():
            for name in (f"{unit}/generated", f"{unit}/{group.request.stage}"):
                totals[name] = totals.get(name, 0.0) + amount
    totals["rounds"] += 1


def count_trained(totals: Totals, lengths: Iterable[np.ndarray]) -> None:
    """Books what was trained on, from each group's lengths."""
    for unit, amount in _amounts(np.concatenate([*lengths])).items():
        totals[f"{unit}/trained"] += amount


def settle(totals: Totals, held: Sequence[Group]) -> dict[str, float]:
    """Books as discarded what is neither trained nor held; returns what is held, `rollouts/buffered` and the like."""
    buffered = _amounts(np.concatenate([np.empty(0, int), *(g.lengths for g in held)]))
    for unit, amount in buffered.items():
        totals[f"{unit}/discarded"] = totals[f"{unit}/generated"] - totals[f"{unit}/trained"] - amount
    return {f"{unit}/buffered": amount for unit, amount in buffered.items()}


def _amounts(lengths: np.ndarray) -> dict[str, float]:
    return {"rollouts": float(lengths.size), "tokens": float(lengths.sum())}
