"""What a step reports: TRL's metric names where TRL has them."""

from collections.abc import Sequence

import numpy as np

from pods_jax.records import Group
from pods_jax.selection.statistics import SelectionStatistics

TROUBLES = ("timeout", "crashed", "no answer", "unparsed")


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards and lengths over all that a step generated, also what is not trained on; a group is a request's.

    `reward*` is over finite rewards. Where an allocator commits more rollouts to some prompts, these weigh more: see
    `candidate_metrics` for the success rate of prompts as they come.
    """
    rewards = [g.rewards[np.isfinite(g.rewards)] for g in groups]
    lengths = np.concatenate([g.lengths for g in groups])
    return {
        "reward": _mean(rewards),
        "reward_std": float(np.mean([r.std(ddof=1) if len(r) > 1 else 0.0 for r in rewards])),
        "frac_reward_zero_std": float(np.mean([len(r) == 0 or r.max() == r.min() for r in rewards])),
        "frac_reward_invalid": 1.0 - _mean([np.isfinite(g.rewards) for g in groups]),
        "accuracy": _mean([g.correct for g in groups]),
        "completions/mean_length": float(lengths.mean()),
        "completions/min_length": float(lengths.min()),
        "completions/max_length": float(lengths.max()),
        "completions/clipped_ratio": _mean([g.truncated for g in groups]),
    } | verdict_metrics(groups)


def candidate_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Raw correctness of prompts as they come: over each one's first request alone, before anything is filtered.

    `candidates/accuracy` is an unbiased estimate of the success rate over the prompts that the allocator drew; beside
    it, the shares of those whose first rollouts are all right or all wrong. Nothing if the step drew none.
    """
    rates = np.array([g.correct.mean() for g in groups if g.request.first == 0])
    shares = {"accuracy": rates, "frac_all_right": rates == 1, "frac_all_wrong": rates == 0}
    return {f"candidates/{name}": float(x.mean()) for name, x in shares.items()} if rates.size else {}


def staleness_metrics(versions: Sequence[np.ndarray], current: int) -> dict[str, float]:
    """How many steps older than the policy that is updated the ones are that generated what is trained on."""
    ages = current - np.concatenate(versions)
    return {"staleness/mean": _mean([ages]), "staleness/max": float(ages.max(initial=0))}


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


def selection_metrics(groups: Sequence[Group], stats: SelectionStatistics, kept: np.ndarray) -> dict[str, float]:
    """Means over the groups to train on of what `selection_statistics` says, and over the finite kept rewards [P, m].

    `selection/num_invalid` counts the rollouts whose rewards are not finite.
    """
    return {
        "selection/group_variance": float(stats.group_variance.mean()),
        "selection/kept_variance": float(stats.kept_variance.mean()),
        "selection/kept_reward": _mean([kept[np.isfinite(kept)]]),
        "selection/num_high": float(stats.num_high.mean()),
        "selection/frac_degenerate": float(stats.degenerate.mean()),
        "selection/num_invalid": float(sum((~np.isfinite(g.rewards)).sum() for g in groups)),
    }


def _mean(parts: Sequence[np.ndarray]) -> float:
    """The mean of all entries; of none, NaN."""
    values = np.concatenate(parts)
    return float(values.mean()) if values.size else float("nan")
