"""Predictions of a prompt's success rate before it gets rollouts.

MoPPS and CurES use a Beta posterior for each example. VIP and the prompt curriculum use models of the prompt's tokens:
a Gaussian process and a logistic regression.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from pods_jax.allocation.outcomes import Outcome
from pods_jax.groups import Prompt


class BetaPosteriors:
    """A Beta distribution over the success rate of each example, uniform before the example was seen."""

    def __init__(self, decay: float = 1.0):
        """decay: weight of earlier rollouts when new ones are added; 1 forgets nothing."""
        self._decay = decay
        self._pairs: dict[int, tuple[float, float]] = {}

    def of(self, index: int) -> tuple[float, float]:
        """The distribution's alpha and beta; both are 1 if the example was not seen."""
        return self._pairs.get(index, (1.0, 1.0))

    def update(self, index: int, outcome: Outcome) -> None:
        """alpha <- decay alpha + (1 - decay) + successes, and beta likewise with failures."""
        if not outcome.count:
            return
        alpha, beta = self.of(index)
        failures = outcome.count - outcome.total
        kept = self._decay
        prior = 1 - self._decay
        self._pairs[index] = (kept * alpha + prior + outcome.total, kept * beta + prior + failures)

    def state_dict(self) -> dict:
        return {
            "examples": np.array(list(self._pairs), np.int64),
            "pairs": np.array(list(self._pairs.values()), float).reshape(-1, 2),
        }

    def load_state_dict(self, state: Mapping) -> None:
        rows = zip(state["examples"], state["pairs"], strict=True)
        self._pairs = {int(index): (float(alpha), float(beta)) for index, (alpha, beta) in rows}


# ---------------------------------------------------------------- models over tokens


# The odd number nearest to 2^64 / golden ratio: its multiples spread over all bits.
_MIX = np.uint64(0x9E3779B97F4A7C15)


def embed(prompts: Sequence[Prompt], size: int) -> np.ndarray:
    """[P, size] unit vectors, which are similar for prompts with similar tokens.

    A vector holds signed counts of the prompt's tokens and pairs of neighbouring tokens; the hash of each names its
    coordinate and its sign. A prompt without tokens has the vector 0.
    """
    return np.stack([_embedded(np.array(p.tokens, np.uint64), size) for p in prompts])


def _embedded(tokens: np.ndarray, size: int) -> np.ndarray:
    keys = np.concatenate([tokens + np.uint64(1), (tokens[:-1] + np.uint64(1)) * _MIX + tokens[1:]])
    hashes = keys * _MIX
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _MIX
    places = (hashes >> np.uint64(32)) % np.uint64(size)
    signs = 1.0 - 2.0 * (hashes >> np.uint64(63)).astype(float)
    counts = np.bincount(places.astype(np.int64), weights=signs, minlength=size)
    return counts / max(float(np.linalg.norm(counts)), 1e-12)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(x / 2))


class GaussianProcess:
    """A Gaussian process over embedded prompts, whose mean is updated with the observations of each step.

    m <- m + K(., B) (K(B, B) + noise I)^-1 (g - m(B)) for observations g at the prompts B, with the kernel
    K(x, y) = exp(-|x - y|^2 / (2 scale^2)) (Nguyen et al. 2026, arXiv 2602.01601). So m is the prior mean plus a
    weighted sum of kernels, one for each example that was observed; the weights are the state.
    """

    def __init__(self, prior_mean: float, scale: float, noise: float):
        """prior_mean: m before observations; scale: the kernel's length scale; noise: variance of an observation."""
        self._prior_mean = prior_mean
        self._scale = scale
        self._noise = noise
        self._places: dict[int, int] = {}
        self._points = np.empty((0, 0))
        self._weights = np.empty(0)

    def mean(self, points: np.ndarray) -> np.ndarray:
        """[k] m at points [k, size]."""
        if not len(self._weights):
            return np.full(len(points), self._prior_mean)
        return self._prior_mean + self._kernel(points, self._points) @ self._weights

    def observe(self, examples: Sequence[int], points: np.ndarray, values: np.ndarray) -> None:
        """Updates m with values [k] at points [k, size] of the examples [k]; an example may occur twice."""
        covariance = self._kernel(points, points) + self._noise * np.eye(len(points))
        weights = np.linalg.solve(covariance, values - self.mean(points))
        new = {index: point for index, point in zip(examples, points, strict=True) if index not in self._places}
        self._places |= {index: len(self._places) + i for i, index in enumerate(new)}
        if new:
            self._points = np.concatenate([self._points.reshape(-1, points.shape[1]), list(new.values())])
            self._weights = np.append(self._weights, np.zeros(len(new)))
        np.add.at(self._weights, [self._places[index] for index in examples], weights)

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        squared = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return np.exp(-np.maximum(squared, 0) / (2 * self._scale**2))

    def state_dict(self) -> dict:
        return {
            "examples": np.array(list(self._places), np.int64),
            "points": self._points.copy(),
            "weights": self._weights.copy(),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self._places = {int(index): place for place, index in enumerate(state["examples"])}
        self._points = np.array(state["points"])
        self._weights = np.array(state["weights"])


class ValueModel:
    """A logistic regression from embedded prompts to success rates, trained by gradient descent on squared errors."""

    def __init__(self, size: int, learning_rate: float, num_updates: int):
        """num_updates: gradient steps on each batch of observations."""
        self._learning_rate = learning_rate
        self._num_updates = num_updates
        self._weights = np.zeros(size + 1)

    def predict(self, points: np.ndarray) -> np.ndarray:
        """[k] success rates at points [k, size]; 1/2 before the first observation."""
        return sigmoid(_with_one(points) @ self._weights)

    def observe(self, points: np.ndarray, rates: np.ndarray) -> None:
        """Lowers the mean of (predicted - rate)^2 over points [k, size] and rates [k]."""
        inputs = _with_one(points)
        for _ in range(self._num_updates):
            predicted = sigmoid(inputs @ self._weights)
            slope = 2 * (predicted - rates) * predicted * (1 - predicted)
            self._weights = self._weights - self._learning_rate * inputs.T @ slope / len(points)

    def state_dict(self) -> dict:
        return {"weights": self._weights.copy()}

    def load_state_dict(self, state: Mapping) -> None:
        self._weights = np.array(state["weights"])


def _with_one(points: np.ndarray) -> np.ndarray:
    """The points with a constant coordinate."""
    return np.concatenate([points, np.ones((len(points), 1))], axis=1)
