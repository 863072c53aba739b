"""Reinforce-Ada (Xiong et al. 2025, arXiv 2510.04996): a prompt gets rollouts in rounds until it has enough."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from pods_jax.allocation.base import Accounts, Stream, register
from pods_jax.allocation.options import OutcomeOptions, options_of, too_small, unknown_choice
from pods_jax.allocation.outcomes import taking_part
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request, joined, pack_groups, unpack_groups


def balanced_exit(positive: int, negative: int, kept: int) -> bool:
    """Whether half of the kept rollouts can be positive and half negative; an odd one out is negative."""
    return positive >= kept // 2 and negative >= kept - kept // 2


def positive_exit(positive: int, negative: int, kept: int) -> bool:
    """Whether a rollout is positive."""
    return positive >= 1


EXIT_RULES: Mapping[str, Callable[[int, int, int], bool]] = {
    "balanced": balanced_exit,
    "positive_focused": positive_exit,
}
"""Functions of a prompt's positive and negative rollouts so far and selection.num_kept: whether it has enough."""


@dataclasses.dataclass(frozen=True)
class ReinforceAdaOptions(OutcomeOptions):
    """Defaults are those of the authors' code, where a round has 8 rollouts a prompt, and 4 of a prompt's are kept.

    Attributes:
      max_rounds: largest number of rounds. Each has rollout.num_generations / max_rounds rollouts a prompt, so a prompt
        gets at most num_generations.
      exit_rule: "balanced": selection.num_kept / 2 positive and as many negative; "positive_focused": one positive.
      positive_above: a rollout is positive if its value by the criterion is above this.
    """

    max_rounds: int = 4
    exit_rule: str = "balanced"
    positive_above: float = 0.7

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
        yield from super().violations(config)
        yield from too_small("max_rounds", self.max_rounds, 1)
        yield from unknown_choice("exit_rule", self.exit_rule, tuple(EXIT_RULES))
        if self.max_rounds >= 1 and n % self.max_rounds:
            yield (
                f"rollout.num_generations = {n} must be a multiple of allocation.options.max_rounds = {self.max_rounds}"
            )


@register("reinforce_ada")
class ReinforceAda:
    """P new prompts a step; each gets rollouts until the exit rule holds or the rounds are over. All are handed over.

    selection.rule chooses a prompt's m trained rollouts: the paper's rule is "balanced", also for a prompt that never
    fulfils the exit rule. The authors take the advantages' mean over all of a prompt's rollouts, and do not divide by
    the deviation: objective.statistics = "group" and objective.scale_rewards = "none".
    """

    Options = ReinforceAdaOptions

    def __init__(self, config: Config):
        self._options = options_of(ReinforceAdaOptions, config)
        self._num_prompts = config.rollout.num_prompts
        self._num_kept = config.selection.num_kept
        self._per_round = config.rollout.num_generations // self._options.max_rounds
        self._accounts = Accounts(("rounds", "candidates", "passed", "unfulfilled"))
        self._pools: list[Group] = []
        self._round = 0

    def requests(self, stream: Stream) -> list[Request]:
        self._round += 1
        self._accounts.add("rounds")
        if self._round == 1:
            self._accounts.add("candidates", self._num_prompts)
            return [Request(p, self._per_round) for p in stream.next(self._num_prompts)]
        return [
            Request(pool.request.prompt, self._per_round, first=pool.request.count)
            for pool in self._pools
            if not self._has_left(pool)
        ]

    def observe(self, groups: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_generated", groups)
        more = iter(groups)
        if self._round == 1:
            self._pools = list(more)
        else:  # the groups are those of `requests`: for the pools that lacked rollouts, in their order
            self._pools = [pool if self._has_left(pool) else joined([pool, next(more)]) for pool in self._pools]
        left = [self._has_left(pool) for pool in self._pools]
        if not all(left) and self._round < self._options.max_rounds:
            return []
        self._accounts.add("passed", sum(left))
        self._accounts.add("unfulfilled", len(left) - sum(left))
        self._accounts.add_rollouts("rollouts_handed_over", self._pools)
        ready = self._pools
        self._pools = []
        self._round = 0
        return ready

    def _has_left(self, pool: Group) -> bool:
        values = taking_part(pool, self._options.criterion)
        positive = int((values > self._options.positive_above).sum())
        return EXIT_RULES[self._options.exit_rule](positive, len(values) - positive, self._num_kept)

    def held(self) -> list[Group]:
        return self._pools

    def metrics(self) -> dict[str, float]:
        return self._accounts.metrics(self._pools)

    def state_dict(self) -> dict:
        return {"accounts": self._accounts.state_dict(), "pools": pack_groups(self._pools), "round": self._round}

    def load_state_dict(self, state: Mapping) -> None:
        self._accounts.load_state_dict(state["accounts"])
        self._pools = unpack_groups(state["pools"])
        self._round = state["round"]
