"""Knapsack RL (Li et al. 2025, arXiv 2509.25849): a step's rollouts go to prompts by what they are worth there."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pods_jax.allocation.base import Accounts, Options, Stream, options_of, register, too_small
from pods_jax.allocation.outcomes import Tally, tally
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request, pack_table, unpack_table


@dataclasses.dataclass(frozen=True)
class KnapsackOptions(Options):
    """Defaults are those of the authors' code.

    Attributes:
      n_min, n_max: rollouts of a prompt that was neither solved nor failed in full.
      n_negative, n_positive: rollouts of a prompt that was never right, or never wrong, when it was last seen.
    """

    n_min: int = 2
    n_max: int = 128
    n_negative: int = 2
    n_positive: int = 2

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
        for name in ("n_min", "n_negative", "n_positive"):
            yield from too_small(name, getattr(self, name), 2)
            if getattr(self, name) > n:
                yield f"allocation.options.{name} = {getattr(self, name)} exceeds rollout.num_generations = {n}"
        if self.n_max < n:
            yield f"allocation.options.n_max = {self.n_max} is below rollout.num_generations = {n}"


@register("knapsack")
class Knapsack:
    """P new prompts a step with P x n rollouts in sum, exactly; every group is trained on.

    A prompt's value for N rollouts is that of `values` at its success rate when it was last seen; rollouts are dealt so
    that the sum of values is largest. Prompts not seen before get n rollouts.

    Our reading, where the paper leaves it open: what all prompts of n_max leave over is shared by the prompts that were
    never right, else by the unseen ones, else by all; n_max does not bind those shares. A prompt without a finite
    reward keeps its earlier success rate.
    """

    Options = KnapsackOptions

    def __init__(self, config: Config):
        self._options = options_of(KnapsackOptions, config)
        self._num_prompts, self._n = config.rollout.num_prompts, config.rollout.num_generations
        self._accounts = Accounts(("unseen", "never_right", "never_wrong", "mixed"))
        self._successes: dict[int, int] = {}
        self._trials: dict[int, int] = {}

    def requests(self, stream: Stream) -> list[Request]:
        prompts = stream.next(self._num_prompts)
        counts = self._counts([self._last(p.index) for p in prompts])
        return [Request(p, int(count)) for p, count in zip(prompts, counts, strict=True)]

    def observe(self, groups: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_generated", groups)
        self._accounts.add_rollouts("rollouts_handed_over", groups)
        for group in groups:
            outcome = tally(group)
            self._accounts.add(_kind(self._last(group.request.prompt.index)))
            if outcome.taking_part:
                self._successes[group.request.prompt.index], self._trials[group.request.prompt.index] = outcome
        return groups

    def _last(self, index: int) -> Tally:
        return Tally(self._successes.get(index, 0), self._trials.get(index, 0))

    def _counts(self, outcomes: Sequence[Tally]) -> np.ndarray:
        """[P] rollouts of each prompt by its last outcome."""
        o, kinds = self._options, np.array([_kind(outcome) for outcome in outcomes])
        counts = np.zeros(len(outcomes), int)
        for kind, count in (("unseen", self._n), ("never_right", o.n_negative), ("never_wrong", o.n_positive)):
            counts[kinds == kind] = count
        budget = self._n * len(outcomes)
        mixed = np.flatnonzero(kinds == "mixed")
        if len(mixed):
            rates = np.array([outcomes[i].successes / outcomes[i].taking_part for i in mixed])
            left = min(budget - int(counts.sum()), o.n_max * len(mixed))
            counts[mixed] = deal(values(rates, o.n_max), left, o.n_min)
        takers = next(t for t in (kinds == "never_right", kinds == "unseen", kinds != "") if t.any())
        counts[takers] += share(budget - int(counts.sum()), int(takers.sum()))
        return counts

    def held(self) -> list[Group]:
        return []

    def metrics(self) -> dict[str, float]:
        return self._accounts.metrics(held=[])

    def state_dict(self) -> dict:
        return {
            "accounts": self._accounts.state_dict(),
            "successes": pack_table(self._successes),
            "trials": pack_table(self._trials),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self._accounts.load_state_dict(state["accounts"])
        self._successes, self._trials = unpack_table(state["successes"]), unpack_table(state["trials"])


def _kind(outcome: Tally) -> str:
    if not outcome.taking_part:
        return "unseen"
    if outcome.successes == 0:
        return "never_right"
    return "never_wrong" if outcome.successes == outcome.taking_part else "mixed"


def values(rates: np.ndarray, n_max: int) -> np.ndarray:
    """[k, n_max + 1] the value of N = 0 .. n_max rollouts at success rates p [k].

    The chance that the rewards vary, times what a step is then worth: (1 - p^N - (1-p)^N) p (1-p)^2.
    """
    p, N = rates[:, None], np.arange(n_max + 1)
    chance = np.maximum(1 - p**N - (1 - p) ** N, 0)
    return chance * p * (1 - p) ** 2


def deal(values: np.ndarray, budget: int, n_min: int) -> np.ndarray:
    """[k] counts N_i in n_min .. n_max with the largest sum of values[i, N_i] among those that sum to the budget.

    By dynamic programming over prompts and budgets; values [k, n_max + 1]; the budget must lie in k n_min .. k n_max.
    """
    k, n_max = values.shape[0], values.shape[1] - 1
    best = np.full(budget + 1, -np.inf)
    best[0] = 0.0
    choices = np.zeros((k, budget + 1), int)
    for i in range(k):
        before, best = best, np.full(budget + 1, -np.inf)
        for n in range(n_min, min(n_max, budget) + 1):
            total = before[: budget + 1 - n] + values[i, n]
            better = total > best[n:]
            best[n:][better] = total[better]
            choices[i, n:][better] = n
    counts = np.zeros(k, int)
    for i in range(k - 1, -1, -1):
        counts[i] = choices[i, budget]
        budget -= counts[i]
    return counts


def share(total: int, k: int) -> np.ndarray:
    """[k] whole numbers that sum to the total and differ by 1 at most, larger ones first."""
    return total // k + (np.arange(k) < total % k)
