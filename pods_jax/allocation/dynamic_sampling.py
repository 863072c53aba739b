"""DAPO's dynamic sampling (Yu et al. 2025, arXiv 2503.14476, section 3.2): rounds until a step has groups that vary."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from pods_jax.allocation.base import Accounts, Stream, register
from pods_jax.allocation.buffer import detached
from pods_jax.allocation.options import (
    FilterOptions,
    options_of,
    too_few_to_vary,
    too_small,
    unknown_choice,
    when_exhausted,
)
from pods_jax.allocation.outcomes import class_of_varying, outcome_of
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Prompt, Request, pack_groups, unpack_groups

COUNTERS = ("rounds", "candidates", "passed", "too_easy", "too_hard", "invalid", "surplus")


class Resampling:
    """Base of allocators that generate rounds until num_prompts groups vary.

    A subclass chooses the prompts of each round (`candidates`), and may learn from their groups (`note`).

    Attributes:
      num_prompts: P; n: rollouts of a prompt.
      step, round: counted from 1; the round is 0 between steps.
      batch: the step's groups so far; accounts: its counters.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        options: FilterOptions,
        *,
        keep_surplus: bool = False,
        counters: Sequence[str] = (),
    ):
        """name: the allocator's name, for messages; counters: names of further counters.

        keep_surplus: whether groups that vary, but that the step does not need, are handed over in the next step.
        """
        self.num_prompts = config.rollout.num_prompts
        self.n = config.rollout.num_generations
        self.accounts = Accounts((*COUNTERS, *counters))
        self.step = 1
        self.round = 0
        self.batch: list[Group] = []
        self._name = name
        self._options = options
        self._keep_surplus = keep_surplus

    def candidates(self, stream: Stream) -> list[Prompt]:
        """The prompts of the next round. A round without prompts is the step's last."""
        raise NotImplementedError

    def note(self, group: Group, kind: str) -> None:
        """Receives each candidate's group and class: "passed", "too_easy", "too_hard" or "invalid"."""

    def requests(self, stream: Stream) -> list[Request]:
        self.round += 1
        self.accounts.add("rounds")
        prompts = self.candidates(stream)
        self.accounts.add("candidates", len(prompts))
        return [Request(p, self.n) for p in prompts]

    def observe(self, groups: list[Group]) -> list[Group]:
        self.accounts.add_rollouts("rollouts_generated", groups)
        for group in groups:
            kind = class_of_varying(outcome_of(group, self._options.criterion))
            self.accounts.add(kind)
            self.note(group, kind)
            if kind == "passed":
                self.batch.append(group)
            else:
                self.accounts.add_rollouts("rollouts_discarded", [group])
        if len(self.batch) >= self.num_prompts:
            return self._hand_over(self.batch[: self.num_prompts], self.batch[self.num_prompts :])
        if self.round >= self._options.max_rounds or not groups:
            return self._hand_over(when_exhausted(self._options.on_exhausted, self._why(), self.batch), [])
        return []

    def _hand_over(self, batch: list[Group], surplus: Sequence[Group]) -> list[Group]:
        """Ends the step. The kept surplus is smaller than a batch, so the next step uses all of it."""
        kept = list(surplus[: self.num_prompts - 1]) if self._keep_surplus else []
        self.accounts.add("surplus", len(surplus))
        self.accounts.add_rollouts("rollouts_handed_over", batch)
        self.accounts.add_rollouts("rollouts_discarded", surplus[len(kept) :])
        self.batch = [detached(group) for group in kept]
        self.step += 1
        self.round = 0
        return batch

    def _why(self) -> str:
        c = self.accounts.counts
        return (
            f"allocation {self._name}: step {self.step} has {len(self.batch)} of {self.num_prompts} groups after "
            f"{self.round} rounds. Candidates in the run so far: {c['candidates']}, of which {c['passed']} had varying "
            f"{self._options.criterion}, {c['too_easy']} were all right, {c['too_hard']} all wrong, {c['invalid']} "
            "without a finite reward. Raise allocation.options.candidates or max_rounds"
        )

    def held(self) -> list[Group]:
        return self.batch

    def metrics(self) -> dict[str, float]:
        return self.accounts.metrics(self.batch)

    def state_dict(self) -> dict:
        return {
            "accounts": self.accounts.state_dict(),
            "batch": pack_groups(self.batch),
            "step": self.step,
            "round": self.round,
        }

    def load_state_dict(self, state: Mapping) -> None:
        self.accounts.load_state_dict(state["accounts"])
        self.batch = unpack_groups(state["batch"])
        self.step = state["step"]
        self.round = state["round"]


# ---------------------------------------------------------------- DAPO


@dataclasses.dataclass(frozen=True)
class DynamicSamplingOptions(FilterOptions):
    """Defaults are those of the authors' run of 512 prompts a step, where a round has 3 x rollout.num_prompts prompts.

    Attributes:
      surplus: groups that vary beyond rollout.num_prompts are thrown away ("discard", as DAPO does), or up to
        num_prompts - 1 of them are trained on in the next step ("keep"), one step old.
    """

    surplus: str = "discard"

    def violations(self, config: Config) -> Iterator[str]:
        yield from too_few_to_vary(config)
        yield from super().violations(config)
        yield from too_small("max_rounds", self.max_rounds, 1)
        yield from unknown_choice("surplus", self.surplus, ("discard", "keep"))


@register("dynamic_sampling")
class DynamicSampling(Resampling):
    """Draws new prompts until P groups have both right and wrong rollouts, and trains on these."""

    Options = DynamicSamplingOptions

    def __init__(self, config: Config):
        o = options_of(DynamicSamplingOptions, config)
        super().__init__("dynamic_sampling", config, o, keep_surplus=o.surplus == "keep")
        self._count = 3 * config.rollout.num_prompts if o.candidates is None else o.candidates

    def candidates(self, stream: Stream) -> list[Prompt]:
        return stream.next(self._count)
