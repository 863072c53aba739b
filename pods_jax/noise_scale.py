"""The noise scale B of a gradient, in prompts: its inter part, between prompts, and its intra part, within a prompt's.

A step on P prompts takes the mean of P gradients. Its noise is as large as its signal at P = B, so that a run needs
about S0 (1 + B / P) steps. B is the *simple noise scale* tr(Sigma) / |G|^2 of McCandlish et al. 2018, arXiv 1812.06162.

**Unit.** Advantages compare a rollout with its group. So a group's rollouts are not independent, and their spread is no
estimate of the group's noise. The unit is therefore a whole group: n rollouts generated, m kept, and advantages from
statistics of its own. Each of a prompts has K >= 2 groups, independent of each other. The gradient of group k of
prompt i is

    g_ik = G + u_i + e_ik,     E u_i = 0,  Cov u_i = Sigma_inter,     E e_ik = 0,  Cov e_ik = Sigma_intra

where Sigma_intra is that of a group of this n and m: more rollouts, or better chosen ones, make it smaller.

**Estimator.** One-way analysis of variance with random effects (Searle, Casella, McCulloch, Variance Components, 1992,
section 3.6), traced over the parameters. With s_i the mean of a prompt's groups and S the mean of all,

    MSW = sum_ik |g_ik - s_i|^2 / (a (K - 1))      E MSW = tr Sigma_intra
    MSB = K sum_i |s_i - S|^2 / (a - 1)            E MSB = tr Sigma_intra + K tr Sigma_inter
    intra = MSW,   inter = (MSB - MSW) / K,   signal = |S|^2 - MSB / (a K)      E signal = |G|^2

Each of the three is unbiased. B_intra = intra / signal, B_inter = inter / signal and B = B_inter + B_intra are ratios
of them, and so only consistent. An estimate of inter or signal may be negative.

**Interval.** The covariance of the three is the jackknife's over prompts (Efron, Stein 1981). The interval of a ratio
is Fieller's (1954), from Student's distribution of a - 1 degrees of freedom. It has no upper end where the signal is
not significantly above 0.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit


class Moments(NamedTuple):
    """Products of the gradients of K groups of each of a prompts, from which the noise scale is estimated.

    Attributes:
      group_squares: |g_ik|^2.
      prompt_squares: |s_i|^2, of the mean of a prompt's groups.
      dots: s_i . S, with S the mean over prompts.
    """

    group_squares: Float[np.ndarray, "a K"]
    prompt_squares: Float[np.ndarray, " a"]
    dots: Float[np.ndarray, " a"]


@dataclasses.dataclass(frozen=True, eq=False)
class NoiseScale:
    """Estimates from the gradients of some prompts.

    Attributes:
      signal: |G|^2; inter, intra: traces of Sigma_inter and Sigma_intra.
      covariance: [3, 3] of the estimates of signal, inter and intra.
      count: number of independent values behind them, one more than the degrees of freedom.
    """

    signal: float
    inter: float
    intra: float
    covariance: Float[np.ndarray, "3 3"]
    count: int

    @property
    def in_prompts(self) -> tuple[float, float, float]:
        """B, B_inter and B_intra; infinite without a positive signal."""
        if self.signal <= 0:
            return np.inf, np.inf, np.inf
        return tuple(x / self.signal for x in (self.inter + self.intra, self.inter, self.intra))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Bounds of B, at least 0; NaN for fewer than three values."""
        if self.count < 3:
            return np.nan, np.nan
        noise = np.array([0, 1, 1])
        spread = self.covariance @ noise
        t = float(stdtrit(self.count - 1, (1 + level) / 2))
        return fieller(self.inter + self.intra, self.signal, noise @ spread, spread[0], self.covariance[0, 0], t)

    def __str__(self) -> str:
        total, inter, intra = self.in_prompts
        low, high = self.interval()
        return f"B = {total:.3g} [{low:.3g}, {high:.3g}] prompts, {inter:.3g} inter and {intra:.3g} intra"


def estimate(moments: Moments) -> NoiseScale:
    """Signal, inter and intra of the module's model.

    Raises:
      ValueError: fewer than two prompts, or than two groups of each.
    """
    a, K = moments.group_squares.shape
    if a < 2 or K < 2:
        raise ValueError(f"a noise scale needs two prompts with two groups each, got {a} with {K}")
    x = Moments(*(np.asarray(values, float) for values in moments))
    within = (x.group_squares.sum(1) - K * x.prompt_squares) / (K - 1)
    mean_square = x.dots.mean()
    whole = _components(within.sum(), x.prompt_squares.sum(), mean_square, a, K)
    if a < 3:
        return NoiseScale(*whole, np.full((3, 3), np.nan), a)
    without = _components(
        within.sum() - within,
        x.prompt_squares.sum() - x.prompt_squares,
        (a**2 * mean_square - 2 * a * x.dots + x.prompt_squares) / (a - 1) ** 2,
        a - 1,
        K,
    )
    return NoiseScale(*map(float, whole), (a - 1) ** 2 / a * np.cov(without), a)


def _components(within, prompt_squares, mean_square, a: int, K: int) -> np.ndarray:
    """Signal, inter and intra [3, ...] from sums over a prompts and |S|^2."""
    msw = within / a
    msb = K * (prompt_squares - a * mean_square) / (a - 1)
    return np.array([mean_square - msb / (a * K), (msb - msw) / K, msw])


def fieller(y: float, x: float, var_y: float, cov: float, var_x: float, t: float) -> tuple[float, float]:
    """The values r >= 0 for which y - r x is within t standard deviations of 0: bounds of the ratio of two means.

    Args:
      y, x: estimates of two means; var_y, cov, var_x: their covariance.
      t: a quantile.

    Returns:
      low, high: high is infinite where x is not significantly above 0; low is 0 where y is not.
    """
    a, b, c = x**2 - t**2 * var_x, x * y - t**2 * cov, y**2 - t**2 * var_y  # bounds are roots of a r^2 - 2 b r + c
    root = np.sqrt(max(b**2 - a * c, 0.0))
    if a > 0 and x > 0:
        return max(0.0, float((b - root) / a)), max(0.0, float((b + root) / a))
    return float((b - root) / a) if a < 0 < c else 0.0, np.inf
