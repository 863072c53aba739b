"""Reinforce-Ada (Xiong et al. 2025, arXiv 2510.04996): rollouts come in rounds, until a prompt has enough."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from pods_jax.allocation.base import Accounts, Options, Stream, options_of, register, too_small, unknown_choice
from pods_jax.allocation.outcomes import Tally, tally
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request, joined, pack_groups, unpack_groups


def _balanced(outcome: Tally, kept: int) -> bool:
    """Half of the kept can be right and half wrong."""
    return min(outcome.successes, outcome.taking_part - outcome.successes) >= kept / 2


def _positive_focused(outcome: Tally, kept: int) -> bool:
    """One is right."""
    return outcome.successes >= 1


EXIT_RULES: dict[str, Callable[[Tally, int], bool]] = {
    "balanced": _balanced,
    "positive_focused": _positive_focused,
}
"""Whether a prompt has enough, by its rollouts so far and selection.num_kept."""


@dataclasses.dataclass(frozen=True)
class ReinforceAdaOptions(Options):
    """Defaults are those of the authors' code, where a round has 8 rollouts a prompt and 8 are kept.

    Attributes:
      max_rounds: rounds at most; each has rollout.num_generations / max_rounds rollouts a prompt, so that
        num_generations is the most that a prompt gets.
      exit_rule: "balanced": selection.num_kept / 2 right and as many wrong; "positive_focused": one right.
    """

    max_rounds: int = 4
    exit_rule: str = "balanced"

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
        yield from too_small("max_rounds", self.max_rounds, 1)
        yield from unknown_choice("exit_rule", self.exit_rule, tuple(EXIT_RULES))
        if self.max_rounds >= 1 and n % self.max_rounds:
            yield (
                f"rollout.num_generations = {n} must be a multiple of allocation.options.max_rounds = {self.max_rounds}"
            )


@register("reinforce_ada")
class ReinforceAda:
    """P new prompts a step; each gets rollouts until its exit rule holds or the rounds are over; all are handed over.

    A rollout is positive if it is correct. Which m of a prompt's rollouts are trained on is the selection's choice
    ("balanced" is the paper's), and objective.statistics = "group" takes the advantages' statistics over all of them.
    Our reading, where the paper leaves it open: a prompt that never fulfils the rule is handed over with all it got.
    """

    Options = ReinforceAdaOptions

    def __init__(self, config: Config):
        o = options_of(ReinforceAdaOptions, config)
        self._max_rounds, self._leaves = o.max_rounds, EXIT_RULES[o.exit_rule]
        self._num_prompts, self._num_kept = config.rollout.num_prompts, config.selection.num_kept
        self._per_round = config.rollout.num_generations // o.max_rounds
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
            if not self._left(pool)
        ]

    def observe(self, groups: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_generated", groups)
        more = iter(groups)
        if self._round == 1:
            self._pools = list(more)
        else:
            self._pools = [pool if self._left(pool) else joined([pool, next(more)]) for pool in self._pools]
        left = [self._left(pool) for pool in self._pools]
        if not all(left) and self._round < self._max_rounds:
            return []
        self._accounts.add("passed", sum(left))
        self._accounts.add("unfulfilled", len(left) - sum(left))
        self._accounts.add_rollouts("rollouts_handed_over", self._pools)
        ready, self._pools, self._round = self._pools, [], 0
        return ready

    def _left(self, pool: Group) -> bool:
        return self._leaves(tally(pool), self._num_kept)

    def held(self) -> list[Group]:
        return self._pools

    def metrics(self) -> dict[str, float]:
        return self._accounts.metrics(self._pools)

    def state_dict(self) -> dict:
        return {"accounts": self._accounts.state_dict(), "pools": pack_groups(self._pools), "round": self._round}

    def load_state_dict(self, state: Mapping) -> None:
        self._accounts.load_state_dict(state["accounts"])
        self._pools, self._round = unpack_groups(state["pools"]), state["round"]
