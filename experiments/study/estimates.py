"""Statistics of the study: means and ratios over seeds with intervals, and the model of a step's cost."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value over `num` seeds, with the bounds of its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float
    num: int


def mean_interval(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The mean with Student's interval."""
    x = np.asarray(values, float)
    if not len(x):
        return Estimate(np.nan, np.nan, np.nan, 0)
    half = stats.t.ppf((1 + level) / 2, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan
    return Estimate(float(x.mean()), float(x.mean() - half), float(x.mean() + half), len(x))


def geometric_mean(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The geometric mean of the positive and finite values, with Student's interval of the mean logarithm.

    Of costs to a target these are the seeds that get there, and not from the start.
    """
    found = mean_interval([math.log(v) for v in values if 0 < v < math.inf], level)
    return Estimate(*(float(np.exp(x)) for x in (found.value, found.low, found.high)), found.num)


def paired_ratio(baseline: Sequence[float], method: Sequence[float], level: float = 0.95) -> Estimate:
    """The geometric mean of baseline / method over seeds in the same order, where both are positive and finite."""
    pairs = [(b, m) for b, m in zip(baseline, method, strict=True) if 0 < b < math.inf and 0 < m < math.inf]
    return geometric_mean([b / m for b, m in pairs], level)


def censored_ratio(
    baseline: Sequence[float],
    method: Sequence[float],
    baseline_budget: float,
    method_budget: float,
    level: float = 0.95,
) -> Estimate:
    """As `paired_ratio`, but a side that is not there (inf) counts with its budget, if the other one is.

    Such a pair is a bound: the true ratio is larger if the baseline is not there, and smaller if the method is not. To
    leave it out would favour the side that fails. Pairs in which neither is there tell nothing and are left out.
    """
    pairs = [(b, m) for b, m in zip(baseline, method, strict=True) if math.isfinite(b) or math.isfinite(m)]
    theirs = [b if math.isfinite(b) else baseline_budget for b, _ in pairs]
    ours = [m if math.isfinite(m) else method_budget for _, m in pairs]
    return paired_ratio(theirs, ours, level)


def num_censored(baseline: Sequence[float], method: Sequence[float]) -> int:
    """Number of pairs in which one side is not there."""
    return sum(math.isfinite(b) != math.isfinite(m) for b, m in zip(baseline, method, strict=True))


def cut(costs: Sequence[float], budget: float) -> list[float]:
    """The costs, with inf (not there) in place of those beyond a budget."""
    return [cost if cost <= budget else math.inf for cost in costs]


@dataclasses.dataclass(frozen=True)
class CostModel:
    """The fit of seconds per step = a + b n + c m by least squares; error: its largest relative error."""

    a: float
    b: float
    c: float
    error: float

    def step(self, n: int | float | np.ndarray, m: int | float | np.ndarray) -> float | np.ndarray:
        """Seconds."""
        return self.a + self.b * n + self.c * m

    def gain(self, n: int, m: int, update_share: float | np.ndarray | None = None) -> float | np.ndarray:
        """The cost of a step that trains on all n over one that trains on m of them.

        update_share: c / b of another machine with the same a and b; by default this machine's.
        """
        c = self.c if update_share is None else self.b * update_share
        return (self.a + (self.b + c) * n) / (self.a + self.b * n + c * m)


def fit_costs(steps: Mapping[tuple[int, int], float]) -> CostModel:
    """Fits seconds per step by (n, m); relative errors are weighed equally.

    Raises:
      ValueError: fewer than three sizes.
    """
    if len(steps) < 3:
        raise ValueError(f"a + b n + c m needs three sizes, got {len(steps)}")
    seconds = np.array(list(steps.values()))
    terms = np.array([(1.0, n, m) for n, m in steps]) / seconds[:, None]
    solution = np.linalg.lstsq(terms, np.ones(len(steps)), rcond=None)[0]
    return CostModel(*map(float, solution), float(np.abs(terms @ solution - 1).max()))
