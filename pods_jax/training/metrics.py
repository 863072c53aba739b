"""What a step reports: TRL's metric names where TRL has them."""

from collections.abc import Sequence

import numpy as np

from pods_jax.records import Group


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
    }


def selection_metrics(rewards: np.ndarray, kept: np.ndarray) -> dict[str, float]:
    """Population variance of the rewards before [P, n] and after [P, m] selection, averaged over groups."""
    return {
        "selection/group_variance": float(rewards.var(axis=1).mean()),
        "selection/kept_variance": float(kept.var(axis=1).mean()),
        "selection/kept_reward": float(kept.mean()),
    }


def _mean(parts: Sequence[np.ndarray]) -> float:
    return float(np.concatenate(parts).mean())
