"""What a step reports: TRL's metric names where TRL has them."""

from collections.abc import Sequence

import numpy as np

from pods_jax.records import Group
from pods_jax.selection.statistics import SelectionStatistics

TROUBLES = ("timeout", "crashed", "no answer", "unparsed")


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards and lengths over all generated rollouts."""
    rewards = [g.rewards for g in groups]
    lengths = np.concatenate([g.lengths for g in groups])
    return {
        "reward": _mean(rewards),
        "reward_std": float(np.mean([r.std(ddof=1) if len(r) > 1 else 0.0 for r in rewards])),
        "frac_reward_zero_std": float(np.mean([r.max() == r.min() for r in rewards])),
        "accuracy": _mean([g.correct for g in groups]),
        "completions/mean_length": float(lengths.mean()),
        "completions/min_length": float(lengths.min()),
        "completions/max_length": float(lengths.max()),
        "completions/clipped_ratio": _mean([g.truncated for g in groups]),
    } | verdict_metrics(groups)


def verdict_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean and population deviation of each part of the reward, and the shares of verdicts that tell of trouble."""
    metrics = {}
    for name in groups[0].parts:
        values = np.concatenate([g.parts[name] for g in groups])
        values = values[~np.isnan(values)]
        if values.size:
            metrics |= {f"rewards/{name}/mean": float(values.mean()), f"rewards/{name}/std": float(values.std())}
    reasons = [reason for g in groups for reason in g.reasons]
    shares = {f"verdicts/{r.replace(' ', '_')}": reasons.count(r) / max(1, len(reasons)) for r in TROUBLES}
    return metrics | shares


def selection_metrics(stats: SelectionStatistics, kept: np.ndarray) -> dict[str, float]:
    """Means over groups of what `selection_statistics` says, and over rollouts of the kept rewards [P, m]."""
    return {
        "selection/group_variance": float(stats.group_variance.mean()),
        "selection/kept_variance": float(stats.kept_variance.mean()),
        "selection/kept_reward": float(kept.mean()),
        "selection/num_high": float(stats.num_high.mean()),
        "selection/frac_degenerate": float(stats.degenerate.mean()),
        "selection/num_invalid": float(stats.num_invalid.sum()),
    }


def _mean(parts: Sequence[np.ndarray]) -> float:
    return float(np.concatenate(parts).mean())
