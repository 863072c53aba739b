"""Learning curves of several seeds on a common grid, and what is read off them: bands, thresholds, speed-ups."""

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from jaxtyping import Float

from pods_jax.analysis.runs import RunRecord

AXES = {
    "wall_time_s": "training time (s)",
    "step": "training step",
    "rollouts/generated": "rollouts generated",
    "rollouts/trained": "rollouts trained on",
    "tokens/generated": "tokens generated",
    "tokens/trained": "tokens trained on",
}
"""What a curve can be drawn against, with the label of the axis. Evaluation and compilation are not training time."""

PHASES = ("sample", "verify", "select", "update")


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """S runs of one method, evaluated at the same E places."""

    x: Float[np.ndarray, " E"]
    y: Float[np.ndarray, "S E"]

    @property
    def mean(self) -> Float[np.ndarray, " E"]:
        return self.y.mean(0)

    @property
    def half_width(self) -> Float[np.ndarray, " E"]:
        """1.96 standard errors of the mean over runs; NaN for a single run."""
        return half_width(self.y)

    def until(self, limit: float) -> "Curves":
        """The part with x <= limit."""
        return Curves(self.x[self.x <= limit], self.y[:, self.x <= limit])

    def smoothed(self, window: int) -> "Curves":
        """The running mean of every run over `window` evaluations, centred, shorter at the ends."""
        return Curves(self.x, np.array([running_mean(run, window) for run in self.y]))


def half_width(values: Float[np.ndarray, "S ..."]) -> np.ndarray:
    """1.96 standard errors of the mean over the first axis; NaN where it has one entry."""
    if len(values) == 1:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(1.96 * values.std(0, ddof=1) / np.sqrt(len(values)))


def running_mean(values: Sequence[float] | Float[np.ndarray, " E"], window: int) -> Float[np.ndarray, " E"]:
    """Centred running mean, shorter at the ends."""
    half, values = window // 2, np.asarray(values, float)
    return np.array([values[max(0, i - half) : i + half + 1].mean() for i in range(len(values))])


def nearest(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], grid: Float[np.ndarray, " E"]) -> np.ndarray:
    """The values [E] at the points of x that are nearest to the grid's."""
    return y[np.abs(x[None] - grid[:, None]).argmin(1)]


def common_grid(runs: Sequence[Float[np.ndarray, " _"]], num: int | None = None) -> Float[np.ndarray, " E"]:
    """Places that all runs cover: the shared ones if they agree there, else `num` (or as many as the longest has)."""
    start, end = max(x[0] for x in runs), min(x[-1] for x in runs)
    inside = [x[(x >= start) & (x <= end)] for x in runs]
    if num is None and all(np.array_equal(x, inside[0]) for x in inside):
        return inside[0]
    return np.linspace(start, end, num or max(map(len, inside)))


def curves_of(
    runs: Sequence[RunRecord],
    metric: str = "accuracy",
    axis: str = "wall_time_s",
    grid: Float[np.ndarray, " E"] | None = None,
) -> Curves:
    """The evaluations of runs (seeds of one method) on a common grid, interpolated linearly.

    Args:
      runs: at least one, each with an evaluation.
      metric: a key of `eval.jsonl`.
      axis: a key of `AXES`.
      grid: where; by default see `common_grid`. NaN beyond what a run covers.
    """
    points = [(_column(run.evals, axis), _column(run.evals, metric)) for run in runs]
    if grid is None:
        grid = common_grid([x for x, _ in points])
    return Curves(grid, np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in points]))


def _column(records: Sequence[dict], key: str) -> np.ndarray:
    return np.array([r[key] for r in records], float)


def phase_seconds(run: RunRecord) -> dict[str, float]:
    """Mean seconds a step: of the whole ("step"), by phase, and what no phase covers ("other")."""
    steps = {p: _mean_seconds(run, p) for p in (*PHASES, "step")}
    return steps | {"other": steps["step"] - sum(steps[p] for p in PHASES)}


def _mean_seconds(run: RunRecord, phase: str) -> float:
    return float(np.mean([m.get(f"time/{phase}_s", 0.0) for m in run.metrics]))


# ---------------------------------------------------------------- thresholds and speed-ups


@dataclasses.dataclass(frozen=True)
class SpeedUp:
    """How much sooner a method reaches what its baseline reaches.

    Attributes:
      threshold: the mean accuracy that both must reach.
      baseline, method: where each first does, on the x axis; inf for never.
      ratio: baseline / method; 0 where only the baseline gets there, or is there from the start; inf where only the
        method does or is; NaN where neither gets there, or both are there from the start.
      low, high: bootstrap interval of the ratio over seeds; NaN for single runs, and where the ratio is not finite.
    """

    threshold: float
    baseline: float
    method: float
    ratio: float
    low: float
    high: float


def first_reach(curves: Curves, threshold: float) -> float:
    """The x of the first evaluation at which the mean curve is at or above the threshold; inf if there is none."""
    return float(_first_reach(curves.x, curves.mean[None], np.array([threshold]))[0])


def speed_up(
    baseline: Curves,
    method: Curves,
    *,
    share: float = 0.99,
    threshold: float | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> SpeedUp:
    """The speed-up as the PODS authors define it (Xu et al. 2025, arXiv 2504.13818), with an interval over seeds.

    t_baseline / t_method, where t is the first evaluation at which the mean curve reaches the threshold: `share` of
    the baseline's best mean, or a fixed number. The interval draws the seeds of both methods with replacement and does
    all of it anew, threshold included; it is no finer than the evaluation grid.

    Args:
      baseline, method: curves [S, E] and [S', E'].
      share: of the baseline's best mean; unused where `threshold` is given.
      threshold: a mean accuracy fixed beforehand.
      level: of the bootstrap percentile interval.
    """
    rng = np.random.default_rng(seed)
    means = [_resampled_means(c.y, resamples, rng) for c in (baseline, method)]
    limits = share * means[0].max(1) if threshold is None else np.full(len(means[0]), threshold)
    theirs, ours = (_first_reach(c.x, m, limits) for c, m in zip((baseline, method), means, strict=True))
    ratios = _ratio(theirs, ours)
    defined = ratios[1:][~np.isnan(ratios[1:])]
    tails = [(1 - level) / 2, (1 + level) / 2]
    spread = defined.size and np.isfinite(ratios[0]) and min(len(baseline.y), len(method.y)) > 1
    low, high = np.quantile(defined, tails, method="closest_observation") if spread else (np.nan, np.nan)
    return SpeedUp(float(limits[0]), float(theirs[0]), float(ours[0]), float(ratios[0]), float(low), float(high))


def _resampled_means(y: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The mean curve of all runs, and then of each resample: [1 + resamples, E]."""
    picks = rng.integers(0, len(y), (resamples, len(y)))
    return np.concatenate([y.mean(0, keepdims=True), y[picks].mean(1)])


def _first_reach(x: np.ndarray, means: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """[B] for means [B, E] and thresholds [B]."""
    reached = means >= thresholds[:, None]
    return np.where(reached.any(1), x[reached.argmax(1)], np.inf)


def _ratio(baseline: np.ndarray, method: np.ndarray) -> np.ndarray:
    """NaN where neither gets there, or both are there from the start."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return baseline / method


# ---------------------------------------------------------------- unfinished runs


def comparable(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs that go as far as the curves of the group (see `last_step`)."""
    end = last_step(runs)
    return [run for run in runs if _reached(run) >= end]


def last_step(runs: Sequence[RunRecord]) -> int:
    """Where the curves of a group end.

    An unfinished run does not cut the finished ones. Of these, or of all if none is finished, the curves go as far as
    makes runs x steps largest: seeds that are a little behind cut them, and one that has hardly begun does not.
    """
    steps = sorted(_reached(run) for run in [r for r in runs if r.finished] or runs)
    return max(steps, key=lambda step: step * sum(s >= step for s in steps))


def remarks(label: str, runs: Sequence[RunRecord]) -> list[str]:
    """A line for each run of a group that is unfinished, or evaluated less far than others: what becomes of it."""
    end, furthest = last_step(runs), max(map(_reached, runs))
    lines = []
    for run in runs:
        step, unfinished = _reached(run), "" if run.finished else "unfinished, "
        if step < end:
            lines.append(f"{run.workdir} is left out: {unfinished}evaluated up to step {step}, and {label} up to {end}")
        elif unfinished or step == end < furthest:
            lines.append(
                f"{run.workdir} is {unfinished}evaluated up to step {step}: the curves of {label} end at {end}"
            )
    return lines


def _reached(run: RunRecord) -> int:
    return run.evals[-1]["step"]


# ---------------------------------------------------------------- costs to a target


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
