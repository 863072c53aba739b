"""The model by which a run's noise scale predicts what PODS and Pilot-Commit gain: steps = S0 (1 + B / P).

Rewards are 0 or 1. A group keeps m rollouts, k of them right. With D = E[score | right] - E[score | wrong] the contrast
of a prompt and V the trace of the covariance of a rollout's score (the gradient of its loss weight times
log-probability), both given right or wrong, GRPO's advantages give a group's gradient

    E[g | k] = c_k D,   tr Cov[g | k] = v_k V

    scale_rewards     c_k                   v_k
    "group"           sqrt(k (m - k)) / m   1 / m for 0 < k < m, else 0
    "none"            k (m - k) / m^2       k (m - k) / m^3

up to a factor that all methods share. A method decides how k is distributed at each success rate p, and how often a
prompt of success rate p is trained on. Over the prompts a method trains on, the noise scale's components are

    signal = r |D|^2 (E c)^2,   signal + inter = |D|^2 E[(E[c | p])^2],   intra = V E v + |D|^2 E Var(c | p)

where r in (0, 1] says how far the prompts' contrasts agree. The three numbers r |D|^2, |D|^2 and V follow from a
measurement under one method, and so give the components under every other one.

The model takes |D|, V and r to be the same for all prompts and success rates.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float
from scipy.special import binom

Counts = Float[np.ndarray, "p k"]
"""Probabilities of each number of right rollouts, 0 to m, by success rate; a row's sum is the share trained on."""


@dataclasses.dataclass(frozen=True)
class MethodModel:
    """A way to spend rollouts on prompts of given success rates.

    Attributes:
      m: rollouts of a group that are trained on.
      counts: success rates -> the number of right ones among them, where the prompt is trained on.
      generated: success rates [p] and their weights [p] -> rollouts generated for each group that is trained on.
    """

    m: int
    counts: Callable[[np.ndarray], Counts]
    generated: Callable[[np.ndarray, np.ndarray], float]


def grpo(m: int) -> MethodModel:
    """m rollouts a prompt, all trained on; a random m of n are distributed in the same way."""
    return MethodModel(m, lambda p: _binomial(m, p), lambda p, weights: float(m))


def pods(n: int, m: int) -> MethodModel:
    """n rollouts a prompt, of which the m of largest variance are kept: as nearly as many right as wrong ones."""
    kept = [min(max(m // 2, m - (n - k)), min(m, k)) for k in range(n + 1)]

    def counts(p: np.ndarray) -> Counts:
        found = np.zeros((len(p), m + 1))
        np.add.at(found, (slice(None), kept), _binomial(n, p))
        return found

    return MethodModel(m, counts, lambda p, weights: float(n))


def pilot_commit(n_pilot: int, n_commit: int, p_lower: float, p_upper: float) -> MethodModel:
    """Pilots for every prompt; commits, and training on the union, where p_lower <= the pilot's rate <= p_upper."""
    rates = np.arange(n_pilot + 1) / n_pilot
    passes = (p_lower <= rates) & (rates <= p_upper)

    def counts(p: np.ndarray) -> Counts:
        pilots = _binomial(n_pilot, p) * passes
        return np.array([np.convolve(*both) for both in zip(pilots, _binomial(n_commit, p), strict=True)])

    def generated(p: np.ndarray, weights: np.ndarray) -> float:
        share = float(weights @ (_binomial(n_pilot, p) * passes).sum(1)) / weights.sum()
        return n_commit + n_pilot / share if share else np.inf

    return MethodModel(n_pilot + n_commit, counts, generated)


def _binomial(n: int, p: np.ndarray) -> Counts:
    """Probabilities of 0 to n successes, by success rate."""
    k = np.arange(n + 1)
    return binom(n, k) * p[:, None] ** k * (1 - p[:, None]) ** (n - k)


# ---------------------------------------------------------------- success rates

GRID = np.sin(np.linspace(0, np.pi / 2, 61)) ** 2
"""Success rates that a distribution may have: 0 to 1, closest at both ends."""


def success_rates(successes: np.ndarray, rollouts: int, iterations: int = 500) -> Float[np.ndarray, " 61"]:
    """Weights of the success rates in `GRID`, of largest likelihood given each prompt's right rollouts (Laird 1978).

    The rates are those of the prompts, without the spread that a few rollouts add to their share of right ones.
    """
    likelihood = _binomial(rollouts, GRID).T[successes]
    weights = np.full(len(GRID), 1 / len(GRID))
    for _ in range(iterations):  # expectation-maximisation
        shares = likelihood * weights
        weights = (shares / shares.sum(1, keepdims=True)).mean(0)
    return weights


# ---------------------------------------------------------------- the prediction


@dataclasses.dataclass(frozen=True)
class Factors:
    """A method's averages over the prompts that it trains on.

    Attributes:
      mean: E c; square: E[(E[c | p])^2]; spread: E Var(c | p); noise: E v.
      generated: rollouts generated for each group that is trained on.
      m: trained on.
    """

    mean: float
    square: float
    spread: float
    noise: float
    generated: float
    m: int


_SCALES: Mapping[str, Callable] = {
    "group": lambda k, m: (np.sqrt(k * (m - k)) / m, ((k > 0) & (k < m)) / m),
    "none": lambda k, m: (k * (m - k) / m**2, k * (m - k) / m**3),
}


def factors(method: MethodModel, rates: np.ndarray, weights: np.ndarray, scale_rewards: str = "group") -> Factors:
    """The averages of a method over prompts of given success rates; NaN where it trains on none.

    Args:
      rates, weights: [p] success rates, and the share of prompts that have each.
      scale_rewards: "group" or "none".
    """
    k = np.arange(method.m + 1)
    c, v = _SCALES[scale_rewards](k, method.m)
    counts = method.counts(rates)
    trained = counts.sum(1)
    seen = trained > 0
    given = counts[seen] / trained[seen, None]
    share = weights[seen] * trained[seen]
    if not share.sum():
        return Factors(*(np.nan,) * 4, np.inf, method.m)
    share = share / share.sum()
    means = given @ c
    return Factors(
        mean=float(share @ means),
        square=float(share @ means**2),
        spread=float(share @ (given @ c**2 - means**2)),
        noise=float(share @ (given @ v)),
        generated=method.generated(rates, weights),
        m=method.m,
    )


def transferred(components: Float[np.ndarray, "N 3"], measured: Factors, other: Factors) -> Float[np.ndarray, "N 3"]:
    """Signal, inter and intra under another method, given those that were measured under one; a row for each estimate.

    A negative estimate of inter or intra counts as 0, and one of the signal as nearly 0.
    """
    noise = np.maximum(components[..., 1:], 0.0)
    signal = np.maximum(components[..., 0], 1e-9 * noise.sum(-1) + 1e-300)
    contrast = (signal + noise[..., 0]) / measured.square
    score = np.maximum(noise[..., 1] - contrast * measured.spread, 0.0) / measured.noise
    new = signal * (other.mean / measured.mean) ** 2
    inter = np.maximum(contrast * other.square - new, 0.0)
    return np.stack([new, inter, score * other.noise + contrast * other.spread], -1)


def step_ratio(
    components: Float[np.ndarray, "N 3"], other: Float[np.ndarray, "N 3"], num_prompts: int
) -> Float[np.ndarray, " N"]:
    """Steps under `components` over those under `other`, (1 + B / P) / (1 + B' / P); P = num_prompts for both."""
    return _steps(components, num_prompts) / _steps(other, num_prompts)


def _steps(components: Float[np.ndarray, "N 3"], num_prompts: int) -> Float[np.ndarray, " N"]:
    return 1 + components[..., 1:].sum(-1) / (components[..., 0] * num_prompts)
