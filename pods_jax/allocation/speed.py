"""SPEED (Zhang et al. 2025, arXiv 2506.09016): a few rollouts screen each prompt; mixed prompts get the rest.

A round is one generation: the continuations of all prompts that qualified in the round before, and the screenings of
new prompts. Finished groups wait in a queue; a step that finds enough of them there generates nothing.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from pods_jax.allocation.base import Accounts, Stream, age_metrics, register
from pods_jax.allocation.buffer import detached
from pods_jax.allocation.options import FilterOptions, options_of, too_small, when_exhausted
from pods_jax.allocation.outcomes import class_of_varying, outcome_of
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request, joined, pack_groups, unpack_groups


@dataclasses.dataclass(frozen=True)
class SpeedOptions(FilterOptions):
    """Defaults are those of the authors' code, whose rounds screen 4 x rollout.num_prompts prompts.

    Attributes:
      n_init: rollouts of a screening.
      n_continue: rollouts of a continuation; None: as many as rollout.num_generations leaves.
    """

    n_init: int = 4
    n_continue: int | None = None
    max_rounds: int = 50

    def n_continued(self, n: int) -> int:
        """Rollouts of a continuation, for groups of n."""
        return n - self.n_init if self.n_continue is None else self.n_continue

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
        more = self.n_continued(n)
        if more < 1 or self.n_init + more != n:
            yield (
                f"allocation.options: {self.n_init} n_init + {more} n_continue rollouts must be "
                f"rollout.num_generations = {n}, with at least one to continue"
            )
        yield from too_small("n_init", self.n_init, 2)
        yield from super().violations(config)
        yield from too_small("max_rounds", self.max_rounds, 2)


@register("speed")
class Speed:
    """Screens and continues prompts in one generation, and trains on the groups that finished first.

    A prompt qualifies if its screening has both right and wrong rollouts. A step takes the groups in the order in which
    their prompts qualified. The age of waiting groups has no bound, no example is evicted, and the end of an epoch has
    no effect.
    """

    Options = SpeedOptions

    def __init__(self, config: Config):
        o = options_of(SpeedOptions, config)
        self._options = o
        self._num_prompts = config.rollout.num_prompts
        self._candidates = 4 * self._num_prompts if o.candidates is None else o.candidates
        self._n_continue = o.n_continued(config.rollout.num_generations)
        self._accounts = Accounts(("rounds", "candidates", "passed", "too_easy", "too_hard", "invalid"))
        self._step = 1
        self._round = 0
        self._qualified: list[Group] = []
        self._finished: list[Group] = []
        self._ages: dict[str, float] = age_metrics([])

    def requests(self, stream: Stream) -> list[Request]:
        if len(self._finished) >= self._num_prompts:
            return []
        self._round += 1
        self._accounts.add("rounds")
        self._accounts.add("candidates", self._candidates)
        n = self._options.n_init
        prompts = [screening.request.prompt for screening in self._qualified]
        continuations = [Request(prompt, self._n_continue, "commit", first=n) for prompt in prompts]
        return continuations + [Request(prompt, n, "pilot") for prompt in stream.next(self._candidates)]

    def observe(self, groups: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_generated", groups)
        if groups:
            self._finish(groups[: len(self._qualified)])
            self._qualified = [detached(g) for g in groups[len(self._qualified) :] if self._qualifies(g)]
        if len(self._finished) >= self._num_prompts:
            return self._hand_over(self._num_prompts)
        if self._round >= self._options.max_rounds:
            return self._hand_over(len(when_exhausted(self._options.on_exhausted, self._why(), self._finished)))
        return []

    def _finish(self, continuations: list[Group]) -> None:
        for screening, continuation in zip(self._qualified, continuations, strict=True):
            self._finished.append(joined([screening, continuation]))

    def _qualifies(self, screening: Group) -> bool:
        kind = class_of_varying(outcome_of(screening, self._options.criterion))
        self._accounts.add(kind)
        if kind != "passed":
            self._accounts.add_rollouts("rollouts_discarded", [screening])
        return kind == "passed"

    def _hand_over(self, count: int) -> list[Group]:
        batch = self._finished[:count]
        self._finished = self._finished[count:]
        self._accounts.add_rollouts("rollouts_handed_over", batch)
        self._ages = age_metrics(batch)
        self._step += 1
        self._round = 0
        return batch

    def _why(self) -> str:
        c = self._accounts.counts
        return (
            f"allocation speed: step {self._step} has {len(self._finished)} of {self._num_prompts} groups after "
            f"{self._round} rounds. Candidates in the run so far: {c['candidates']}, of which {c['passed']} qualified, "
            f"{c['too_easy']} were all right, {c['too_hard']} all wrong, {c['invalid']} without a finite reward. Raise "
            "allocation.options.candidates or max_rounds"
        )

    # ---------------------------------------------------------------- accounts and state

    def held(self) -> list[Group]:
        return [*self._finished, *self._qualified]

    def metrics(self) -> dict[str, float]:
        return self._accounts.metrics(self.held()) | self._ages

    def state_dict(self) -> dict:
        return {
            "accounts": self._accounts.state_dict(),
            "qualified": pack_groups(self._qualified),
            "finished": pack_groups(self._finished),
            "step": self._step,
            "round": self._round,
            "ages": dict(self._ages),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self._accounts.load_state_dict(state["accounts"])
        self._qualified = unpack_groups(state["qualified"])
        self._finished = unpack_groups(state["finished"])
        self._step = state["step"]
        self._round = state["round"]
        self._ages = dict(state["ages"])
