"""A small pilot for every candidate prompt, the rest of the rollouts for those that pass: Pilot-Commit and SPEED.

A round is one generation: the commits of prompts whose pilots passed before, and the pilots of new candidates. What
passes waits in the replay buffer for a later round. A trained group is the union of a prompt's pilot and its commit.
"""

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from pods_jax.allocation.base import Accounts, Stream, generator, when_exhausted
from pods_jax.allocation.buffer import ReplayBuffer
from pods_jax.allocation.outcomes import Tally, classify, tally
from pods_jax.groups import (
    Group,
    Prompt,
    Request,
    joined,
    pack_groups,
    pack_table,
    unpack_groups,
    unpack_prompt,
    unpack_table,
)

COUNTERS = (
    "rounds", "candidates", "passed", "too_easy", "too_hard", "invalid", "deferred", "evicted",
    "buffer_adds", "buffer_pops", "buffer_expired", "buffer_overflowed", "buffer_cleared",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Plan:
    """The numbers of a two-stage allocator.

    Attributes:
      num_prompts: groups a step; candidates: pilots a round.
      n_pilot, n_commit: rollouts of each stage.
      thin: the pilot's rollouts that stay in the union.
      band: the inclusive counts of successes that pass, of so many rollouts.
      solved: whether a pilot counts towards the eviction of its example; evict_after: how many in a row evict it.
      buffer_size, buffer_order: see `ReplayBuffer`.
      max_staleness: how many steps a pilot may be older than its commit; None: no bound.
      clear_at_epoch_end: whether what waits at the end of an epoch is discarded.
      max_rounds: rounds a step; on_exhausted: see `when_exhausted`.
    """

    num_prompts: int
    candidates: int
    n_pilot: int
    n_commit: int
    thin: Callable[[Group], Group]
    band: Callable[[int], tuple[int, int]]
    solved: Callable[[Tally], bool]
    evict_after: int
    buffer_size: int
    buffer_order: str
    max_staleness: int | None
    clear_at_epoch_end: bool
    max_rounds: int
    on_exhausted: str


class TwoStage:
    """The rounds; what differs between methods is in the plan, and in `wanted`."""

    def __init__(self, name: str, plan: Plan, seed: int):
        self._name, self._plan, self._seed = name, plan, seed
        self._accounts = Accounts(COUNTERS)
        self._source = CandidateSource(plan.evict_after)
        self._buffer = ReplayBuffer(plan.buffer_size, plan.buffer_order)
        self._step, self._round = 1, 0
        self._batch: list[Group] = []
        self._committing: list[Group] = []
        self._ages: list[int] = []
        self._spent = False

    def wanted(self) -> int:
        """How many candidates the next round takes."""
        return self._plan.candidates

    # ---------------------------------------------------------------- a round

    def requests(self, stream: Stream) -> list[Request]:
        drawn, new_epoch = self._source.draw(stream, self.wanted())
        if new_epoch and self._plan.clear_at_epoch_end:
            self._discard("buffer_cleared", self._buffer.clear())
            self._accounts.add_rollouts("rollouts_discarded", self._batch)
            self._batch = []
        if self._plan.max_staleness is not None:
            self._discard("buffer_expired", self._buffer.expire(self._step - self._plan.max_staleness))
        self._round += 1
        rng = generator(self._seed, "buffer", self._step, self._round)
        self._committing = self._buffer.pop(self._plan.num_prompts - len(self._batch), rng)
        self._spent = self._source.spent(stream)
        self._accounts.add("rounds")
        self._accounts.add("candidates", len(drawn))
        self._accounts.add("buffer_pops", len(self._committing))
        commits = [
            Request(g.request.prompt, self._plan.n_commit, "commit", first=self._plan.n_pilot) for g in self._committing
        ]
        if not commits and not drawn and not self._batch:
            when_exhausted(self._plan.on_exhausted, self._why(), partial=[])
        return commits + [Request(prompt, self._plan.n_pilot, "pilot") for prompt in drawn]

    def observe(self, groups: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_generated", groups)
        commits, pilots = groups[: len(self._committing)], groups[len(self._committing) :]
        for pilot, commit in zip(self._committing, commits, strict=True):
            kept = self._plan.thin(pilot)
            self._accounts.add("rollouts_discarded", len(pilot.rewards) - len(kept.rewards))
            self._batch.append(joined([kept, commit]))
        self._committing = []
        for pilot in pilots:
            self._judge(pilot)
        if len(self._batch) == self._plan.num_prompts:
            return self._hand_over(self._batch)
        if self._round >= self._plan.max_rounds or (self._spent and not self._buffer):
            return self._hand_over(when_exhausted(self._plan.on_exhausted, self._why(), self._batch))
        return []

    def _judge(self, pilot: Group) -> None:
        """Puts a pilot into its class, and into the buffer if it passed."""
        outcome = tally(pilot)
        name = classify(outcome, self._plan.band(outcome.taking_part))
        self._accounts.add(name)
        if self._source.note(pilot.request.prompt, self._plan.solved(outcome)):
            self._accounts.add("evicted")
        if name == "passed":
            self._accounts.add("buffer_adds")
            self._discard("buffer_overflowed", self._buffer.add(pilot, self._step))
        else:
            self._accounts.add("deferred", name != "too_easy")
            self._accounts.add_rollouts("rollouts_discarded", [pilot])

    def _discard(self, name: str, groups: list[Group]) -> None:
        self._accounts.add(name, len(groups))
        self._accounts.add_rollouts("rollouts_discarded", groups)

    def _hand_over(self, batch: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_handed_over", batch)
        self._ages = [int(np.ptp(g.policy_versions)) for g in batch]
        self._batch, self._step, self._round = [], self._step + 1, 0
        return batch

    def _why(self) -> str:
        c = self._accounts.counts
        reason = (
            f"every one of the data set's examples was evicted as solved ({c['evicted']} of them)"
            if self._spent
            else f"no full batch in {self._round} rounds"
        )
        return (
            f"allocation {self._name}: {reason}; step {self._step} has {len(self._batch)} of {self._plan.num_prompts} "
            f"groups. Candidates in the run so far: {c['candidates']}, of which {c['passed']} passed, {c['too_easy']} "
            f"were too easy, {c['too_hard']} too hard, {c['invalid']} without a finite reward; {len(self._buffer)} "
            f"wait in the buffer. {self.advice()}"
        )

    def advice(self) -> str:
        """What the user can change when there are too few groups."""
        return "Raise allocation.options.candidates or max_rounds"

    # ---------------------------------------------------------------- books and state

    def held(self) -> list[Group]:
        return [*self._buffer.groups, *self._committing, *self._batch]

    def metrics(self) -> dict[str, float]:
        ages = self._ages or [0]
        return self._accounts.metrics(self.held()) | {
            "allocation/buffer_size": float(len(self._buffer)),
            "allocation/age_mean": float(np.mean(ages)),
            "allocation/age_max": float(max(ages)),
        }

    def state_dict(self) -> dict:
        return {
            "accounts": self._accounts.state_dict(),
            "source": self._source.state_dict(),
            "buffer": self._buffer.state_dict(),
            "batch": pack_groups(self._batch),
            "step": self._step,
            "round": self._round,
            "ages": list(self._ages),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self._accounts.load_state_dict(state["accounts"])
        self._source.load_state_dict(state["source"])
        self._buffer.load_state_dict(state["buffer"])
        self._batch, self._committing = unpack_groups(state["batch"]), []
        self._step, self._round, self._ages = state["step"], state["round"], list(state["ages"])


def solved_at(p_solve: float | None) -> Callable[[Tally], bool]:
    """Whether p_solve <= success rate, exactly; None: never. A pilot without a finite reward solves nothing."""
    if p_solve is None:
        return lambda outcome: False
    threshold = Fraction(repr(float(p_solve)))
    return lambda outcome: outcome.taking_part > 0 and outcome.successes >= threshold * outcome.taking_part


# ---------------------------------------------------------------- candidates


class CandidateSource:
    """Draws from the stream; a round never crosses into the next epoch, whose first prompt waits for the next round."""

    def __init__(self, evict_after: int):
        """evict_after: how many epochs in a row an example must be solved in to be evicted."""
        self._evict_after = evict_after
        self._epoch = 0
        self._waiting: Prompt | None = None
        self._solved: dict[int, int] = {}
        self._evicted: dict[int, int] = {}

    @property
    def evicted(self) -> frozenset[int]:
        """The indices of the evicted examples."""
        return frozenset(self._evicted)

    def spent(self, stream: Stream) -> bool:
        """Whether no example is left to draw."""
        return len(self._evicted) >= stream.num_examples

    def draw(self, stream: Stream, count: int) -> tuple[list[Prompt], bool]:
        """Up to `count` prompts of one epoch, and whether it is a later one than the last draw's."""
        drawn: list[Prompt] = []
        before = self._epoch
        while len(drawn) < count and not self.spent(stream):
            prompt = self._waiting or stream.next(1)[0]
            self._waiting = None
            if prompt.epoch != self._epoch and drawn:
                self._waiting = prompt
                break
            self._epoch = prompt.epoch
            if not prompt.epoch > self._evicted.get(prompt.index, prompt.epoch):
                drawn.append(prompt)
        return drawn, self._epoch != before

    def note(self, prompt: Prompt, solved: bool) -> bool:
        """Counts a solved pilot, or ends its row; returns whether it evicts the example, from the next epoch on."""
        row = self._solved.pop(prompt.index, 0)
        if not solved:
            return False
        if row + 1 < self._evict_after:
            self._solved[prompt.index] = row + 1
            return False
        self._evicted[prompt.index] = prompt.epoch
        return True

    def state_dict(self) -> dict:
        return {
            "epoch": self._epoch,
            "waiting": self._waiting and dataclasses.asdict(self._waiting),
            "solved": pack_table(self._solved),
            "evicted": pack_table(self._evicted),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self._epoch = state["epoch"]
        self._waiting = state["waiting"] and unpack_prompt(state["waiting"])
        self._solved, self._evicted = unpack_table(state["solved"]), unpack_table(state["evicted"])
