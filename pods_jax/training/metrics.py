"""The numbers that a step reports: rewards and lengths, the accounts of rollouts, seconds by phase.

Metrics have TRL's names where TRL has them.
"""

import contextlib
import functools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from pods_jax.groups import Group
from pods_jax.learner.batch import Batch
from pods_jax.parallel import to_host
from pods_jax.selection.statistics import SelectionStatistics

_DIFFERENCE = "sampling/sampling_logp_difference"
TROUBLES = ("timeout", "wall timeout", "crashed", "no answer", "unparsed")


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards and lengths of all rollouts that a step generated, trained on or not. groups: one a request.

    `reward*` covers finite rewards; `reward_std` is the sample deviation of all of them, as in TRL. Prompts to which an
    allocator commits more rollouts weigh more here; `candidate_metrics` has the success rate of prompts as they come.
    """
    rewards = [g.rewards[np.isfinite(g.rewards)] for g in groups]
    lengths = np.concatenate([g.own_lengths for g in groups])
    return (
        {
            "reward": _mean(rewards),
            "reward_std": _std(np.concatenate(rewards)),
            "frac_reward_zero_std": float(np.mean([len(r) == 0 or r.max() == r.min() for r in rewards])),
            "frac_reward_invalid": 1.0 - _mean([np.isfinite(g.rewards) for g in groups]),
            "accuracy": _mean([g.correct for g in groups]),
            "completions/mean_length": float(lengths.mean()),
            "completions/min_length": float(lengths.min()),
            "completions/max_length": float(lengths.max()),
            "completions/clipped_ratio": _mean([g.truncated for g in groups]),
        }
        | verdict_metrics(groups)
        | turn_metrics(groups)
        | kept_mass_metrics(groups)
    )


def turn_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Turns of the policy, between which are observations, and the tokens of these in a rollout.

    Empty without an environment.
    """
    masks = [g.loss_mask for g in groups if g.loss_mask is not None]
    if not masks:
        return {}
    turns = np.concatenate([(np.diff(mask, axis=1, prepend=False) & mask).sum(1) for mask in masks])
    observed = np.concatenate([g.lengths - g.own_lengths for g in groups])
    means = {"turns/mean": turns.mean(), "turns/max": turns.max(), "turns/observation_tokens": observed.mean()}
    return {name: float(value) for name, value in means.items()}


def kept_mass_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean and least probability mass that the draw of a token kept; empty where tokens are drawn from all.

    It is probability over drawn probability. Under a repetition penalty that may be above 1.
    """
    if groups[0].drawn_logprobs is None:
        return {}
    masses = [np.exp(g.logprobs - g.drawn_logprobs)[g.own_mask] for g in groups]
    return {"sampling/kept_mass/mean": _mean(masses), "sampling/kept_mass/min": float(np.concatenate(masses).min())}


def candidate_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Raw correctness of the prompts that the step drew, over each one's first request, before any filter.

    `candidates/accuracy` is an unbiased estimate of the success rate over the drawn prompts. Beside it stand the shares
    of prompts whose first rollouts are all right or all wrong. Empty if the step drew none.
    """
    rates = np.array([g.correct.mean() for g in groups if g.request.first == 0])
    shares = {"accuracy": rates, "frac_all_right": rates == 1, "frac_all_wrong": rates == 0}
    return {f"candidates/{name}": float(x.mean()) for name, x in shares.items()} if rates.size else {}


def staleness_metrics(versions: Sequence[np.ndarray], current: int) -> dict[str, float]:
    """Age, in steps, of the policies that generated the trained rollouts.

    Args:
      versions: the step of the policy that generated each trained rollout.
      current: the step of the policy that is updated.
    """
    ages = current - np.concatenate(versions)
    return {"staleness/mean": _mean([ages]), "staleness/max": float(ages.max(initial=0))}


def mismatch_metrics(before: Sequence[jax.Array], batches: Sequence[Batch], current: int) -> dict[str, float]:
    """Distance, in nats a token, of the policy before the step's first update from the log-probabilities sampled with.

    `sampling/sampling_logp_difference/*` (TRL's names) cover the rollouts of the current policy, and so tell what
    sampler and learner compute differently; NaN where the update had none. Older rollouts have
    `staleness/logp_difference_mean/AGE`, by their age in steps.

    Args:
      before: [P, m, T] log-probabilities under that policy, of each batch.
      current: the step of that policy.
    """
    pairs = zip(before, batches, strict=True)
    sums, maxima, lengths = zip(*(_differences(x, b) for x, b in pairs), strict=True)
    ages = [current - b.versions for b in batches]
    sums, maxima, lengths, ages = map(_flat_on_host, (sums, maxima, lengths, ages))
    metrics = dict.fromkeys((f"{_DIFFERENCE}/mean", f"{_DIFFERENCE}/max"), float("nan"))
    for age in np.unique(ages[lengths > 0]):
        own = (lengths > 0) & (ages == age)
        mean = float(sums[own].sum() / lengths[own].sum())
        if age == 0:
            metrics |= {f"{_DIFFERENCE}/mean": mean, f"{_DIFFERENCE}/max": float(maxima[own].max())}
        else:
            metrics[f"staleness/logp_difference_mean/{age}"] = mean
    return metrics


def _flat_on_host(arrays: Sequence[jax.Array]) -> np.ndarray:
    return np.concatenate([x.ravel() for x in to_host(list(arrays))])


@jax.jit
def _differences(logprobs: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sum and maximum [P, m] of each rollout's absolute differences, and the number of its tokens."""
    own = batch.own_mask
    gaps = jnp.where(own, jnp.abs(logprobs - batch.sampler_logprobs), 0.0)
    return gaps.sum(-1), gaps.max(-1), own.sum(-1)


def verdict_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean and population deviation of each reward part, and the share of verdicts of each kind in `TROUBLES`."""
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
    """Means of `selection_statistics` over the trained groups.

    `selection/kept_reward` is the mean of the finite kept rewards [P, m]; `selection/num_invalid` counts the rollouts
    whose rewards are not finite.
    """
    return {
        "selection/group_variance": float(stats.group_variance.mean()),
        "selection/kept_variance": float(stats.kept_variance.mean()),
        "selection/kept_reward": _mean([kept[np.isfinite(kept)]]),
        "selection/num_high": float(stats.num_high.mean()),
        "selection/frac_degenerate": float(stats.degenerate.mean()),
        "selection/num_invalid": float(sum((~np.isfinite(g.rewards)).sum() for g in groups)),
    }


def _std(values: np.ndarray) -> float:
    """Sample deviation; 0 of fewer than two values."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _mean(parts: Sequence[np.ndarray]) -> float:
    """Mean of all entries; NaN if there are none."""
    values = np.concatenate(parts)
    return float(values.mean()) if values.size else float("nan")


# ---------------------------------------------------------------- accounts


Totals = dict[str, float]
"""Cumulative amounts by name. After every step, in rollouts and in tokens,

    generated = trained + discarded + buffered      generated = the sum over stages (plain, pilot, commit)

`buffered` is the amount that the allocator still holds; it is the only one that may fall. Evaluations never count. A
rollout is trained if it had a share in a loss, and counts once, however often the update used it. All others are
discarded: dropped by the allocator, left out by selection, masked as truncated, or of a reward that is not finite.
"""


def new_totals() -> Totals:
    """Totals of 0."""
    names = [f"{unit}/{fate}" for unit in ("rollouts", "tokens") for fate in ("generated", "trained", "discarded")]
    return dict.fromkeys([*names, "rounds", "wall_time_s"], 0.0)


def count_generated(totals: Totals, groups: Sequence[Group]) -> None:
    """Books a round of rollouts, in all and by the stage of their requests (`rollouts/STAGE`, `tokens/STAGE`).

    Without groups there was no round: an allocator that hands over what it held has generated nothing.
    """
    for group in groups:
        for unit, amount in _amounts(group.own_lengths).items():
            stage = f"{unit}/{group.request.stage}"
            totals[stage] = totals.get(stage, 0.0) + amount
            totals[f"{unit}/generated"] += amount
    totals["rounds"] += bool(groups)


def count_trained(totals: Totals, lengths: Iterable[np.ndarray]) -> None:
    """Books the trained rollouts. lengths: of each group's trained rollouts, in tokens."""
    for unit, amount in _amounts(np.concatenate([np.empty(0, int), *lengths])).items():  # none if updates were skipped
        totals[f"{unit}/trained"] += amount


def settle(totals: Totals, held: Sequence[Group]) -> dict[str, float]:
    """Books as discarded all that is neither trained nor held; returns `rollouts/buffered` and `tokens/buffered`."""
    buffered = _amounts(np.concatenate([np.empty(0, int), *(g.own_lengths for g in held)]))
    for unit, amount in buffered.items():
        totals[f"{unit}/discarded"] = totals[f"{unit}/generated"] - totals[f"{unit}/trained"] - amount
    return {f"{unit}/buffered": amount for unit, amount in buffered.items()}


def _amounts(lengths: np.ndarray) -> dict[str, float]:
    return {"rollouts": float(lengths.size), "tokens": float(lengths.sum())}


# ---------------------------------------------------------------- the clock


_COMPILE_EVENTS = ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")


@functools.cache
def _compilation() -> Counter:
    """Running totals of this process's seconds of compilation, by the thread that compiled.

    Tracing stays with its phase, since JAX reports nested traces twice.
    """
    total: Counter = Counter()

    def add(event: str, duration_s: float, **_) -> None:
        total[threading.get_ident()] += duration_s if event in _COMPILE_EVENTS else 0.0

    jax.monitoring.register_event_duration_secs_listener(add)
    return total


class PhaseClock:
    """Accumulates the seconds of each phase of a thread; JAX's compilations inside one, in it, go to "compile".

    The time of a phase within another is its own: no second is counted twice.
    """

    def __init__(self):
        self._seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start_s = time.perf_counter()
        thread = threading.get_ident()
        compiled_s = _compilation()[thread]
        before = Counter(self._seconds)
        yield
        inner_s = sum(self._seconds.values()) - sum(before.values())
        compiled_s = _compilation()[thread] - compiled_s - (self._seconds["compile"] - before["compile"])
        self._seconds["compile"] += compiled_s
        self._seconds[name] += max(time.perf_counter() - start_s - inner_s - compiled_s, 0.0)

    def add(self, name: str, seconds: float) -> None:
        """Books seconds of another thread, which are part of no phase here."""
        self._seconds[name] += seconds

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds
