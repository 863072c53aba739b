"""What a step reports: TRL's metric names where TRL has them."""

import contextlib
import functools
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from pods_jax.groups import Group
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


# ---------------------------------------------------------------- accounts


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


# ---------------------------------------------------------------- the clock


_COMPILE_EVENTS = ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")


@functools.cache
def _compilation() -> Counter:
    """A running total of this process's seconds of compilation, under "s". (Tracing is left with its phase: JAX
    reports nested traces twice.)"""
    total: Counter = Counter()

    def add(event: str, duration_s: float, **_) -> None:
        total["s"] += duration_s if event in _COMPILE_EVENTS else 0.0

    jax.monitoring.register_event_duration_secs_listener(add)
    return total


class PhaseClock:
    """Accumulates seconds a phase; time that JAX spends compiling inside one goes to "compile" instead.

    A phase within another has its time for itself: no second is counted twice.
    """

    def __init__(self):
        self._seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start, compiled, before = time.perf_counter(), _compilation()["s"], Counter(self._seconds)
        yield
        inner = sum(self._seconds.values()) - sum(before.values())
        compiled = _compilation()["s"] - compiled - (self._seconds["compile"] - before["compile"])
        self._seconds["compile"] += compiled
        self._seconds[name] += max(time.perf_counter() - start - inner - compiled, 0.0)

    def take(self) -> dict[str, float]:
        """The seconds since the last call, by phase."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds
