"""Knapsack RL (Li et al. 2025, arXiv 2509.25849): deals a step's rollouts to the prompts where they are worth most."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pods_jax.allocation.base import OneRound, Stream, register
from pods_jax.allocation.options import OutcomeOptions, options_of, too_small
from pods_jax.allocation.outcomes import taking_part
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request


@dataclasses.dataclass(frozen=True)
class KnapsackOptions(OutcomeOptions):
    """Defaults are those of the authors' code.

    Attributes:
      n_min, n_max: smallest and largest number of rollouts of a mixed prompt, one that is sometimes right.
      n_negative, n_positive: rollouts of a prompt that is never right, and of one that is never wrong.
      window: number of a prompt's last rollouts in its success rate, or the size of its last group if that is larger.
      trusted: smallest number of rollouts for a success rate; a prompt with fewer is unknown, and gets n rollouts.
      allow_fallback: whether mixed prompts get only as many rollouts as suffice to see a success and a failure with
        probability `confidence`, and prompts without success get the rest; False: mixed prompts get all of it.
      confidence: that probability.
    """

    n_min: int = 2
    n_max: int = 128
    n_negative: int = 2
    n_positive: int = 2
    window: int = 16
    trusted: int = 8
    allow_fallback: bool = True
    confidence: float = 0.9

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
        yield from super().violations(config)
        for name in ("n_min", "n_negative", "n_positive"):
            yield from too_small(name, getattr(self, name), 2)
            if getattr(self, name) > n:
                yield f"allocation.options.{name} = {getattr(self, name)} exceeds rollout.num_generations = {n}"
        if self.n_max < n:
            yield f"allocation.options.n_max = {self.n_max} is below rollout.num_generations = {n}"
        if not 1 <= self.trusted <= self.window:
            yield (
                f"allocation.options: 1 <= trusted <= window must hold, got trusted = {self.trusted} and window = "
                f"{self.window}"
            )
        if not 0 < self.confidence < 1:
            yield f"allocation.options.confidence must lie between 0 and 1, got {self.confidence}"


@register("knapsack")
class Knapsack(OneRound):
    """P new prompts a step with P x n rollouts in sum, exactly; every group is trained on.

    The success rate is the mean of the criterion's values, each held to [0, 1]. A prompt without a finite reward keeps
    the rate that it had. `budgets` turns rates into counts.
    """

    Options = KnapsackOptions

    def __init__(self, config: Config):
        super().__init__(config, ("unseen", "never_right", "never_wrong", "mixed"))
        self._options = options_of(KnapsackOptions, config)
        self._history: dict[int, np.ndarray] = {}

    def requests(self, stream: Stream) -> list[Request]:
        prompts = stream.next(self.num_prompts)
        counts = budgets([self._rate(p.index) for p in prompts], self.n, self._options)
        return [Request(p, int(count)) for p, count in zip(prompts, counts, strict=True)]

    def learn(self, groups: Sequence[Group]) -> None:
        for group in groups:
            index = group.request.prompt.index
            self.accounts.add(kind_of(self._rate(index)))
            values = taking_part(group, self._options.criterion).clip(0, 1)
            longest = max(self._options.window, len(values))
            self._history[index] = np.concatenate([self._history.get(index, np.empty(0)), values])[-longest:]

    def _rate(self, index: int) -> float | None:
        """The example's success rate; None if it is over too few rollouts."""
        values = self._history.get(index, ())
        return None if len(values) < self._options.trusted else float(np.mean(values))

    def state_dict(self) -> dict:
        history = list(self._history.values())
        return super().state_dict() | {
            "examples": np.array(list(self._history), np.int64),
            "sizes": np.array([len(values) for values in history], np.int64),
            "values": np.concatenate([np.empty(0), *history]),
        }

    def load_state_dict(self, state: Mapping) -> None:
        super().load_state_dict(state)
        ends = np.cumsum(state["sizes"])
        rows = zip(state["examples"], ends - state["sizes"], ends, strict=True)
        self._history = {int(index): state["values"][start:end] for index, start, end in rows}


# ---------------------------------------------------------------- the rule


def kind_of(rate: float | None) -> str:
    """The class of a success rate (None: unknown): "unseen", "never_right", "never_wrong" or "mixed"."""
    if rate is None:
        return "unseen"
    if rate == 0:
        return "never_right"
    return "never_wrong" if rate == 1 else "mixed"


def budgets(rates: Sequence[float | None], n: int, o: KnapsackOptions) -> np.ndarray:
    """[P] rollouts of each prompt by its success rate (None: unknown), P x n in sum, as in the authors' code.

    An unknown prompt gets n, one that is never right or never wrong its fixed number, and a mixed one n_min. The rest:
      1. With allow_fallback, the part that mixed prompts do not need (see `needed`) is shared equally by the prompts
         without success, which include unknown ones; if there are none, by all prompts that are not mixed.
      2. The remainder is dealt to the mixed prompts so that it is worth most (see `deal`, `gains`). If all of them
         reach n_max, they share what is still left equally.
    Without mixed prompts, the prompts without success share the rest; if there are none of these either, every prompt
    gets n.
    """
    kinds = np.array([kind_of(rate) for rate in rates])
    fixed = {"unseen": n, "never_right": o.n_negative, "never_wrong": o.n_positive, "mixed": o.n_min}
    counts = np.array([fixed[kind] for kind in kinds])
    left = n * len(rates) - int(counts.sum())
    mixed = np.flatnonzero(kinds == "mixed")
    without_success = np.flatnonzero((kinds == "never_right") | (kinds == "unseen"))
    takers = without_success if len(without_success) else np.flatnonzero(kinds != "mixed")
    if not len(mixed):
        return _shared(counts, takers, left) if len(without_success) else np.full(len(rates), n)
    p = np.array([rates[i] for i in mixed])
    if o.allow_fallback and len(takers):
        spare = max(left - sum(needed(rate, o) for rate in p), 0)
        counts = _shared(counts, takers, spare)
        left -= spare
    dealt = min(left, len(mixed) * (o.n_max - o.n_min))
    counts[mixed] += deal(gains(p, o.n_min, o.n_max), dealt)
    return _shared(counts, mixed, left - dealt)


def _shared(counts: np.ndarray, takers: np.ndarray, total: int) -> np.ndarray:
    """The counts after the takers have shared a total equally; the first takers get the larger shares."""
    counts = counts.copy()
    counts[takers] += share(total, len(takers))
    return counts


def needed(rate: float, o: KnapsackOptions) -> int:
    """Number of rollouts after which both outcomes were seen with about probability `confidence`, rounded down."""
    of_likely = math.log(max(rate, 1 - rate))  # 0 for a rate that cannot be told from 0 or 1
    return int(min(o.n_max, math.log(1 - o.confidence) / of_likely)) if of_likely else o.n_max


def gains(rates: np.ndarray, n_min: int, n_max: int) -> np.ndarray:
    """[k, n_max - n_min + 1] the worth of 0, 1, ... rollouts beyond n_min at success rates p [k].

    N rollouts are worth (1 - p^N - (1-p)^N) p (1-p)^2: the probability that they vary, times the gain of a step if they
    do. As in the authors' code, n_min rollouts are worth 0, so that each mixed prompt first gets one more.
    """
    p = rates[:, None]
    N = np.arange(n_min, n_max + 1)
    worth = np.maximum(1 - p**N - (1 - p) ** N, 0) * p * (1 - p) ** 2
    worth[:, 0] = 0
    return worth


def deal(gains: np.ndarray, budget: int) -> np.ndarray:
    """[k] counts c_i with the largest sum of gains[i, c_i] among those that sum to the budget.

    It is a dynamic program over prompts and budgets. gains: [k, width]; budget: at most k (width - 1).
    """
    k, width = gains.shape
    best = np.full(budget + 1, -np.inf)
    best[0] = 0.0
    choices = np.zeros((k, budget + 1), int)
    for i in range(k):
        before = best
        best = np.full(budget + 1, -np.inf)
        for c in range(min(width, budget + 1)):
            total = before[: budget + 1 - c] + gains[i, c]
            better = total > best[c:]
            best[c:][better] = total[better]
            choices[i, c:][better] = c
    counts = np.zeros(k, int)
    for i in range(k - 1, -1, -1):
        counts[i] = choices[i, budget]
        budget -= counts[i]
    return counts


def share(total: int, k: int) -> np.ndarray:
    """[k] whole numbers that sum to the total and differ by at most 1, the larger ones first."""
    return total // k + (np.arange(k) < total % k)
