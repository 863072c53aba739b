"""Rounds until a step has enough groups whose correctness varies: DAPO's dynamic sampling, and GRESO."""

from collections.abc import Mapping, Sequence

from pods_jax.allocation.base import Accounts, Stream, when_exhausted
from pods_jax.allocation.outcomes import classify, tally, varies
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Prompt, Request, pack_groups, unpack_groups

COUNTERS = ("rounds", "candidates", "passed", "too_easy", "too_hard", "invalid", "surplus")


class Resampling:
    """The rounds; `candidates` says which prompts get rollouts, `note` learns from them.

    Attributes:
      step, round: counted from 1; the round is 0 between steps.
      batch: the step's groups so far; accounts: its counters.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        max_rounds: int,
        on_exhausted: str,
        *,
        keep_surplus: bool = False,
        counters: Sequence[str] = (),
    ):
        """keep_surplus: whether what passes beyond the step's need is handed over in the next step.

        counters: names of further ones.
        """
        self.num_prompts, self.n = config.rollout.num_prompts, config.rollout.num_generations
        self.accounts = Accounts((*COUNTERS, *counters))
        self.step, self.round = 1, 0
        self.batch: list[Group] = []
        self._name = name
        self._max_rounds, self._on_exhausted, self._keep_surplus = max_rounds, on_exhausted, keep_surplus

    def candidates(self, stream: Stream) -> list[Prompt]:
        """The prompts of a round; none ends the step as its last round does."""
        raise NotImplementedError

    def note(self, group: Group, verdict: str) -> None:
        """Is told every candidate's class: "passed", "too_easy", "too_hard" or "invalid"."""

    def requests(self, stream: Stream) -> list[Request]:
        self.round += 1
        self.accounts.add("rounds")
        prompts = self.candidates(stream)
        self.accounts.add("candidates", len(prompts))
        if not prompts and not self.batch:
            when_exhausted(self._on_exhausted, self._why(), partial=[])
        return [Request(p, self.n) for p in prompts]

    def observe(self, groups: list[Group]) -> list[Group]:
        self.accounts.add_rollouts("rollouts_generated", groups)
        for group in groups:
            verdict = _classify(group)
            self.accounts.add(verdict)
            self.note(group, verdict)
            if verdict == "passed":
                self.batch.append(group)
            else:
                self.accounts.add_rollouts("rollouts_discarded", [group])
        if len(self.batch) >= self.num_prompts:
            return self._hand_over(self.batch[: self.num_prompts], self.batch[self.num_prompts :])
        if self.round >= self._max_rounds or not groups:
            return self._hand_over(when_exhausted(self._on_exhausted, self._why(), self.batch), [])
        return []

    def _hand_over(self, batch: list[Group], surplus: Sequence[Group]) -> list[Group]:
        """The kept surplus is smaller than a batch: so it is used up in the next step, and never older than that."""
        kept = list(surplus[: self.num_prompts - 1]) if self._keep_surplus else []
        self.accounts.add("surplus", len(surplus))
        self.accounts.add_rollouts("rollouts_handed_over", batch)
        self.accounts.add_rollouts("rollouts_discarded", surplus[len(kept) :])
        self.batch, self.step, self.round = kept, self.step + 1, 0
        return batch

    def _why(self) -> str:
        c = self.accounts.counts
        return (
            f"allocation {self._name}: step {self.step} has {len(self.batch)} of {self.num_prompts} groups after "
            f"{self.round} rounds. Candidates in the run so far: {c['candidates']}, of which {c['passed']} had varying "
            f"correctness, {c['too_easy']} were all right, {c['too_hard']} all wrong, {c['invalid']} without a finite "
            "reward. Raise allocation.options.candidates or max_rounds"
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
        self.batch, self.step, self.round = unpack_groups(state["batch"]), state["step"], state["round"]


def _classify(group: Group) -> str:
    outcome = tally(group)
    return "passed" if varies(group) else classify(outcome, (1, outcome.taking_part - 1))
