"""Learning curves of several seeds on a common grid, and numbers read off them: bands, speed-ups, costs to a target."""

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from pods_jax.analysis.runs import RunRecord

AXES = {
    "wall_time_s": "training time (s)",
    "step": "training step",
    "rollouts/generated": "rollouts generated",
    "rollouts/trained": "rollouts trained on",
    "tokens/generated": "tokens generated",
    "tokens/trained": "tokens trained on",
}
"""Quantities that a curve can be drawn against, with axis labels. Evaluation and compilation are not training time."""

PHASES = ("sample", "verify", "select", "update")
"""Parts of a step whose seconds a run logs."""


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
        """Half-width of Student's 95 % interval of the mean over runs; NaN for a single run."""
        return half_width(self.y)

    def smoothed(self, window: int) -> "Curves":
        """The mean of every run over the last `window` evaluations until each, fewer at the start."""
        return Curves(self.x, np.array([running_mean(run, window) for run in self.y]))


def half_width(values: Float[np.ndarray, "S ..."]) -> np.ndarray:
    """Half-width of Student's 95 % interval of the mean over the first axis; NaN where it has one entry.

    The factor of the standard error is 2.26 for 10 entries, 2.78 for 5 and 4.30 for 3.
    """
    if len(values) == 1:
        return np.full(values.shape[1:], np.nan)
    factor = stdtrit(len(values) - 1, 0.975)
    return np.asarray(factor * values.std(0, ddof=1) / np.sqrt(len(values)))


def running_mean(values: Sequence[float] | Float[np.ndarray, " E"], window: int) -> Float[np.ndarray, " E"]:
    """The mean of the last `window` values until each, of fewer at the start: it knows nothing of later values."""
    values = np.asarray(values, float)
    return np.array([values[max(0, i + 1 - window) : i + 1].mean() for i in range(len(values))])


def nearest_values(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], grid: Float[np.ndarray, " E"]) -> np.ndarray:
    """The y [E] at the points of x that are nearest to the grid's."""
    return y[np.abs(x[None] - grid[:, None]).argmin(1)]


def common_grid(runs: Sequence[Float[np.ndarray, " _"]], num: int | None = None) -> Float[np.ndarray, " E"]:
    """Places that all runs cover: those that they share, or `num` equidistant ones if they differ.

    num: by default the number of places of the run that has most of them.
    """
    start = max(x[0] for x in runs)
    end = min(x[-1] for x in runs)
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
      grid: places on the axis, by default `common_grid`'s; beyond what a run covers its value is NaN.
    """
    places = [eval_column(run, axis) for run in runs]
    values = [eval_column(run, metric) for run in runs]
    if grid is None:
        grid = common_grid(places)
    on_grid = [np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in zip(places, values, strict=True)]
    return Curves(grid, np.array(on_grid))


def eval_column(run: RunRecord, key: str) -> Float[np.ndarray, " E"]:
    """One quantity over all evaluations of a run."""
    return np.array([evaluation[key] for evaluation in run.evals], float)


def phase_seconds(run: RunRecord) -> dict[str, float]:
    """Mean seconds of a step ("step"), of each of its phases, and of the rest ("other")."""
    seconds = {phase: _mean_seconds(run, phase) for phase in PHASES}
    step = _mean_seconds(run, "step")
    return seconds | {"step": step, "other": step - sum(seconds.values())}


def _mean_seconds(run: RunRecord, phase: str) -> float:
    return float(np.mean([m.get(f"time/{phase}_s", 0.0) for m in run.metrics]))


# ---------------------------------------------------------------- thresholds and speed-ups


@dataclasses.dataclass(frozen=True)
class SpeedUp:
    """Ratio of the costs at which a baseline and a method reach the same mean accuracy.

    Attributes:
      threshold: the mean accuracy that both must reach.
      baseline, method: the x at which each first reaches it; inf for never.
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
    paired: bool = False,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> SpeedUp:
    """The speed-up as the PODS authors define it (Xu et al. 2025, arXiv 2504.13818), with an interval over seeds.

    It is t_baseline / t_method, where t is the first evaluation at which the mean curve reaches the threshold. The
    interval draws the seeds of both methods with replacement and does all of it anew, threshold included; it is no
    finer than the evaluation grid.

    Args:
      baseline, method: curves [S, E] and [S', E'].
      share: of the baseline's best mean, which is the threshold; unused where `threshold` is given.
      threshold: a mean accuracy fixed beforehand.
      paired: whether run i of both has the same seed, and so warm start and data: then pairs are drawn.
      level: of the bootstrap percentile interval.
    """
    rng = np.random.default_rng(seed)
    picks = _picks(len(baseline.y), resamples, rng)
    baseline_means = _resampled_means(baseline.y, picks)
    method_means = _resampled_means(method.y, picks if paired else _picks(len(method.y), resamples, rng))
    thresholds = share * baseline_means.max(1) if threshold is None else np.full(len(baseline_means), threshold)
    baseline_x = _first_reach(baseline.x, baseline_means, thresholds)
    method_x = _first_reach(method.x, method_means, thresholds)
    ratios = _ratio(baseline_x, method_x)
    has_interval = np.isfinite(ratios[0]) and len(baseline.y) > 1 and len(method.y) > 1
    low, high = _percentile_interval(ratios[1:], level) if has_interval else (np.nan, np.nan)
    first = (thresholds[0], baseline_x[0], method_x[0], ratios[0], low, high)
    return SpeedUp(*map(float, first))


def _picks(num_runs: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The runs of each resample: [resamples, num_runs]."""
    return rng.integers(0, num_runs, (resamples, num_runs))


def _resampled_means(y: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """The mean curve of all runs, and then of each resample: [1 + resamples, E]."""
    return np.concatenate([y.mean(0, keepdims=True), y[picks].mean(1)])


def _first_reach(x: np.ndarray, means: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """[B] for means [B, E] and thresholds [B]."""
    reached = means >= thresholds[:, None]
    return np.where(reached.any(1), x[reached.argmax(1)], np.inf)


def _ratio(baseline: np.ndarray, method: np.ndarray) -> np.ndarray:
    """NaN where neither gets there, or both are there from the start."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return baseline / method


def _percentile_interval(ratios: np.ndarray, level: float) -> tuple[float, float]:
    """Bounds among the ratios that are defined; NaN if none is."""
    defined = ratios[~np.isnan(ratios)]
    if not defined.size:
        return np.nan, np.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2], method="closest_observation")
    return low, high


# ---------------------------------------------------------------- costs to a target


Evals = Sequence[Mapping[str, int | float]]
"""The lines of an eval.jsonl, in order of steps."""


def rollouts_to_target(evals: Evals, target: float, *, metric: str = "accuracy", window: int = 1) -> float | None:
    """All rollouts generated, trained on or not, up to the first evaluation at or above the target.

    This is how the Pilot-Commit paper counts (Kim et al. 2026, arXiv 2605.26606); the spacing of evaluations limits
    its resolution.

    Args:
      target: in the metric's unit; shares are in 0..1.
      metric: a key of the evaluations.
      window: the target is compared with the mean of the last `window` evaluations, or fewer at the start.

    Returns:
      None if the target was never reached: all that is known is that it takes more than the run spent.
    """
    return cost_to_target(evals, target, "rollouts/generated", metric=metric, window=window)


def time_to_target(evals: Evals, target: float, *, metric: str = "accuracy", window: int = 1) -> float | None:
    """Seconds of training, evaluation and compilation excluded, as `rollouts_to_target`."""
    return cost_to_target(evals, target, "wall_time_s", metric=metric, window=window)


def cost_to_target(
    evals: Evals, target: float, cost: str, *, metric: str = "accuracy", window: int = 1
) -> float | None:
    """Any total that evaluations have under the key `cost`, as `rollouts_to_target`."""
    values = [evaluation[metric] for evaluation in evals]
    for i, evaluation in enumerate(evals):
        if fmean(values[max(0, i + 1 - window) : i + 1]) >= target:
            return float(evaluation[cost])
    return None


def cost_at_crossing(evals: Evals, target: float, cost: str, *, metric: str = "accuracy") -> float | None:
    """The total under the key `cost` at which the learning curve first crosses the target; None if it never does.

    The curve is made of straight lines through the first evaluation and the means of each two that follow one another,
    which lie halfway between them. So it does not depend on how far apart evaluations are, unlike `cost_to_target`,
    which counts up to the evaluation after the crossing.
    """
    y = np.array([evaluation[metric] for evaluation in evals], float)
    x = np.array([evaluation[cost] for evaluation in evals], float)
    x, y = (np.concatenate([z[:1], (z[:-1] + z[1:]) / 2]) for z in (x, y))
    found = first_crossing(x, y, target)
    return found if np.isfinite(found) else None


def first_crossing(x: Float[np.ndarray, " E"], y: Float[np.ndarray, " E"], target: float) -> float:
    """The x at which straight lines through the points are first at the target, coming from below; inf if nowhere."""
    reached = np.flatnonzero(y >= target)
    if not len(reached):
        return np.inf
    i = reached[0]
    return float(x[i] if i == 0 else np.interp(target, y[i - 1 : i + 1], x[i - 1 : i + 1]))
