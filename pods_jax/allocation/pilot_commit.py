"""Pilot-Commit (Kim et al. 2026, arXiv 2605.26606): most rollouts go to prompts whose rewards vary.

A round is one generation: the commits of prompts whose pilots passed earlier, and the pilots of new candidates. A
prompt that passes waits in the replay buffer for a later round. A trained group is the union of a prompt's pilot and
its commit.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pods_jax.allocation.base import Accounts, Stream, age_metrics, generator, register
from pods_jax.allocation.buffer import ORDERS, ReplayBuffer
from pods_jax.allocation.options import FilterOptions, options_of, too_small, unknown_choice, when_exhausted
from pods_jax.allocation.outcomes import (
    Outcome,
    class_of_varying,
    class_within,
    counts_within,
    exact,
    outcome_of,
    values_of,
)
from pods_jax.config.schema import Config
from pods_jax.groups import (
    Group,
    Prompt,
    Request,
    joined,
    pack_groups,
    pack_table,
    subset,
    unpack_groups,
    unpack_prompt,
    unpack_table,
)


@dataclasses.dataclass(frozen=True)
class PilotCommitOptions(FilterOptions):
    """Defaults are those of the paper's published runs, or of its code where the runs differ from each other.

    A round has 3 x rollout.num_prompts candidates.

    Attributes:
      n_pilot: rollouts of a candidate; None: a quarter of rollout.num_generations.
      n_commit: further rollouts of a prompt that passed; None: as many as rollout.num_generations leaves. A trained
        group has rollout.num_generations rollouts.
      n_effective: number of the pilot's rollouts that stay in the group; None: all.
      pilot_selection: the choice of these: "max_variance" (as many right as wrong ones, where possible) or "first".
      p_lower, p_upper: success rates of the pilot between which a prompt passes, both inclusive. The authors' code has
        `diversity_threshold_lower`, which is p_lower, and `diversity_threshold_upper`, which is 1 - p_upper.
      p_solve: success rate from which a pilot counts as solved; None: no example is evicted.
      evict_after_k_solved: number of epochs in a row in which an example must be solved to be evicted, from the next
        epoch on.
      buffer_size: largest number of prompts that wait; the one that was added first leaves a full buffer.
      buffer_sampling: order in which prompts leave the buffer: a name in `pods_jax.allocation.buffer.ORDERS`.
      max_staleness: largest age of a pilot, in steps, when its commit is generated.
      clear_at_epoch_end: whether waiting prompts are discarded when an epoch ends, as in the authors' code.
      balance_updates: whether a step of several updates (objective.steps_per_generation) deals the groups to them so
        that all have about equally many tokens, as in the authors' code.
    """

    n_pilot: int | None = None
    n_commit: int | None = None
    n_effective: int | None = None
    pilot_selection: str = "max_variance"
    p_lower: float = 0.125
    p_upper: float = 0.75
    p_solve: float | None = 1.0
    evict_after_k_solved: int = 1
    buffer_size: int = 100_000
    buffer_sampling: str = "random"
    max_staleness: int = 4
    clear_at_epoch_end: bool = True
    balance_updates: bool = True

    def sizes(self, n: int) -> tuple[int, int, int]:
        """Numbers of rollouts for groups of n: of the pilot, of its part that is kept, and of the commit."""
        pilot = n // 4 if self.n_pilot is None else self.n_pilot
        kept = pilot if self.n_effective is None else self.n_effective
        return pilot, kept, n - kept if self.n_commit is None else self.n_commit

    def violations(self, config: Config) -> Iterator[str]:
        yield from self._wrong_sizes(config.rollout.num_generations)
        yield from self._wrong_rates(config.rollout.num_generations)
        yield from super().violations(config)
        yield from too_small("evict_after_k_solved", self.evict_after_k_solved, 1)
        yield from too_small("buffer_size", self.buffer_size, 1)
        yield from too_small("max_staleness", self.max_staleness, 0)
        yield from too_small("max_rounds", self.max_rounds, 2)
        yield from unknown_choice("pilot_selection", self.pilot_selection, tuple(PILOT_SELECTIONS))
        yield from unknown_choice("buffer_sampling", self.buffer_sampling, tuple(ORDERS))

    def _wrong_sizes(self, n: int) -> Iterator[str]:
        pilot, kept, commit = self.sizes(n)
        if pilot < 2:
            yield f"allocation.options.n_pilot = {pilot} must be at least 2: one rollout can not vary"
        if not 0 <= kept <= pilot:
            yield f"allocation.options.n_effective = {kept} must lie between 0 and n_pilot = {pilot}"
        if commit < 1 or kept + commit != n:
            yield (
                f"allocation.options: {kept} pilot + {commit} commit rollouts must be rollout.num_generations = {n}, "
                "with at least one commit"
            )

    def _wrong_rates(self, n: int) -> Iterator[str]:
        pilot, _, _ = self.sizes(n)
        if not 0 <= self.p_lower <= self.p_upper <= 1:
            yield (
                "allocation.options: 0 <= p_lower <= p_upper <= 1 must hold, got "
                f"p_lower = {self.p_lower}, p_upper = {self.p_upper}"
            )
        elif pilot >= 2 and np.subtract(*counts_within(self.p_lower, self.p_upper, pilot)) > 0:
            yield (
                f"allocation.options: no count of {pilot} pilots lies in p_lower..p_upper = "
                f"{self.p_lower}..{self.p_upper}"
            )
        if self.p_solve is not None and not 0 < self.p_solve <= 1:
            yield f"allocation.options.p_solve must lie in (0, 1] or be None, got {self.p_solve}"


COUNTERS = (
    "rounds", "candidates", "passed", "too_easy", "too_hard", "invalid", "deferred", "evicted",
    "buffer_adds", "buffer_pops", "buffer_expired", "buffer_overflowed", "buffer_cleared",
)  # fmt: skip


@register("pilot_commit")
class PilotCommit:
    """Spends a pilot on each candidate, and a commit on those that pass; docs/allocation.md has its exact rules."""

    Options = PilotCommitOptions

    def __init__(self, config: Config):
        o = options_of(PilotCommitOptions, config)
        self._options = o
        self._seed = config.seed
        self._num_prompts = config.rollout.num_prompts
        self._candidates = 3 * self._num_prompts if o.candidates is None else o.candidates
        self._n_pilot, self._n_kept, self._n_commit = o.sizes(config.rollout.num_generations)
        self._updates = config.objective.steps_per_generation if o.balance_updates else 1
        self._accounts = Accounts(COUNTERS)
        self._source = CandidateSource(o.evict_after_k_solved)
        self._buffer = ReplayBuffer(o.buffer_size, o.buffer_sampling, o.criterion)
        self._step = 1
        self._round = 0
        self._batch: list[Group] = []
        self._committing: list[Group] = []
        self._ages: dict[str, float] = age_metrics([])
        self._spent = False

    # ---------------------------------------------------------------- a round

    def requests(self, stream: Stream) -> list[Request]:
        drawn, new_epoch = self._source.draw(stream, self._candidates)
        if new_epoch and self._options.clear_at_epoch_end:
            self._end_epoch()
        self._discard("buffer_expired", self._buffer.expire(self._step - self._options.max_staleness))
        self._round += 1
        rng = generator(self._seed, "buffer", self._step, self._round)
        self._committing = self._buffer.pop(self._num_prompts - len(self._batch), rng)
        self._spent = self._source.spent(stream)
        self._accounts.add("rounds")
        self._accounts.add("candidates", len(drawn))
        self._accounts.add("buffer_pops", len(self._committing))
        prompts = [pilot.request.prompt for pilot in self._committing]
        commits = [Request(prompt, self._n_commit, "commit", first=self._n_pilot) for prompt in prompts]
        return commits + [Request(prompt, self._n_pilot, "pilot") for prompt in drawn]

    def _end_epoch(self) -> None:
        self._discard("buffer_cleared", self._buffer.clear())
        self._accounts.add_rollouts("rollouts_discarded", self._batch)
        self._batch = []

    def observe(self, groups: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_generated", groups)
        commits = groups[: len(self._committing)]
        pilots = groups[len(self._committing) :]
        for pilot, commit in zip(self._committing, commits, strict=True):
            self._batch.append(joined([self._thinned(pilot), commit]))
        self._committing = []
        for pilot in pilots:
            self._sort(pilot)
        if len(self._batch) == self._num_prompts:
            return self._hand_over(self._batch)
        if self._round >= self._options.max_rounds or (self._spent and not self._buffer):
            return self._hand_over(when_exhausted(self._options.on_exhausted, self._why(), self._batch))
        return []

    def _thinned(self, pilot: Group) -> Group:
        """The group of the pilot's rollouts that stay in the union."""
        self._accounts.add("rollouts_discarded", self._n_pilot - self._n_kept)
        if self._n_kept == self._n_pilot:
            return pilot
        values = np.nan_to_num(values_of(pilot, self._options.criterion), nan=0.0)
        return subset(pilot, PILOT_SELECTIONS[self._options.pilot_selection](values, self._n_kept))

    def _sort(self, pilot: Group) -> None:
        """Counts a pilot in its class, and adds it to the buffer if it passed."""
        outcome = outcome_of(pilot, self._options.criterion)
        kind = self._class_of(outcome)
        self._accounts.add(kind)
        if self._source.note(pilot.request.prompt, self._solved(outcome)):
            self._accounts.add("evicted")
        if kind == "passed":
            self._accounts.add("buffer_adds")
            self._discard("buffer_overflowed", self._buffer.add(pilot, self._step))
        else:
            self._accounts.add("deferred", kind != "too_easy")
            self._accounts.add_rollouts("rollouts_discarded", [pilot])

    def _class_of(self, outcome: Outcome) -> str:
        """The class by the thresholds, except that equal rewards never pass: a constant reward between the thresholds
        would. Equal correctness is 0 or 1, and there the thresholds decide."""
        if self._options.criterion == "reward" and not outcome.varies:
            return class_of_varying(outcome)
        return class_within(outcome, self._options.p_lower, self._options.p_upper)

    def _solved(self, outcome: Outcome) -> bool:
        return self._options.p_solve is not None and outcome.reaches(exact(self._options.p_solve))

    def _discard(self, name: str, groups: list[Group]) -> None:
        self._accounts.add(name, len(groups))
        self._accounts.add_rollouts("rollouts_discarded", groups)

    def _hand_over(self, batch: list[Group]) -> list[Group]:
        self._accounts.add_rollouts("rollouts_handed_over", batch)
        self._ages = age_metrics(batch)
        self._batch = []
        self._step += 1
        self._round = 0
        return balanced(batch, self._updates)

    def _why(self) -> str:
        c = self._accounts.counts
        reason = (
            f"every one of the data set's examples was evicted as solved ({c['evicted']} of them)"
            if self._spent
            else f"no full batch in {self._round} rounds"
        )
        return (
            f"allocation pilot_commit: {reason}; step {self._step} has {len(self._batch)} of {self._num_prompts} "
            f"groups. Candidates in the run so far: {c['candidates']}, of which {c['passed']} passed, {c['too_easy']} "
            f"were too easy, {c['too_hard']} too hard, {c['invalid']} without a finite reward; {len(self._buffer)} "
            "wait in the buffer. Raise allocation.options.candidates or max_rounds, widen p_lower..p_upper, or set "
            "clear_at_epoch_end = False where an epoch has only a few rounds"
        )

    # ---------------------------------------------------------------- accounts and state

    def held(self) -> list[Group]:
        return [*self._buffer.groups, *self._committing, *self._batch]

    def metrics(self) -> dict[str, float]:
        size = {"allocation/buffer_size": float(len(self._buffer))}
        return self._accounts.metrics(self.held()) | size | self._ages

    def state_dict(self) -> dict:
        return {
            "accounts": self._accounts.state_dict(),
            "source": self._source.state_dict(),
            "buffer": self._buffer.state_dict(),
            "batch": pack_groups(self._batch),
            "step": self._step,
            "round": self._round,
            "ages": dict(self._ages),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self._accounts.load_state_dict(state["accounts"])
        self._source.load_state_dict(state["source"])
        self._buffer.load_state_dict(state["buffer"])
        self._batch = unpack_groups(state["batch"])
        self._committing = []
        self._step = state["step"]
        self._round = state["round"]
        self._ages = dict(state["ages"])


# ---------------------------------------------------------------- choices among rollouts and groups


def most_varied(values: np.ndarray, count: int) -> np.ndarray:
    """The places of `count` values that have the largest variance among all subsets of that size.

    They are some of the largest and some of the smallest values (Xu et al. 2025, arXiv 2504.13818). Among equal values
    the first are taken, and among equally good subsets the one with the fewest of the largest values.
    """
    values = np.asarray(values, float)
    rising = np.argsort(values, kind="stable")
    falling = np.argsort(-values, kind="stable")
    subsets = [_ends(falling, rising, largest, count) for largest in range(count + 1)]
    return np.sort(max(subsets, key=lambda places: _spread(values[places])))


def _ends(falling: np.ndarray, rising: np.ndarray, largest: int, count: int) -> np.ndarray:
    top = falling[:largest]
    return np.concatenate([top, rising[~np.isin(rising, top)][: count - largest]])


def _spread(values: np.ndarray) -> float:
    """The variance times the square of the number of values; it is exact for whole numbers."""
    return len(values) * (values**2).sum() - values.sum() ** 2


def first_ones(values: np.ndarray, count: int) -> np.ndarray:
    """The places of the first `count` rollouts."""
    return np.arange(count)


PILOT_SELECTIONS: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "max_variance": most_varied,
    "first": first_ones,
}


def balanced(groups: Sequence[Group], parts: int) -> list[Group]:
    """The groups, ordered so that `parts` consecutive runs of equally many groups have about equally many tokens.

    Starting with the longest, each group goes to the run with the fewest tokens so far among those that are not full.
    The order stays as it is if `parts` is 1 or does not divide the number of groups.
    """
    if parts < 2 or len(groups) % parts:
        return list(groups)
    tokens = [int(g.lengths.sum()) for g in groups]
    runs: list[list[int]] = [[] for _ in range(parts)]
    for place in sorted(range(len(groups)), key=lambda i: -tokens[i]):
        open_runs = [run for run in runs if len(run) < len(groups) // parts]
        min(open_runs, key=lambda run: sum(tokens[i] for i in run)).append(place)
    return [groups[place] for run in runs for place in run]


# ---------------------------------------------------------------- candidates


class CandidateSource:
    """Draws candidates from the stream, without the evicted examples; all candidates of a round are of one epoch."""

    def __init__(self, evict_after: int):
        """evict_after: number of epochs in a row in which an example must be solved to be evicted."""
        self._evict_after = evict_after
        self._epoch = 0
        self._waiting: Prompt | None = None
        self._solved: dict[int, int] = {}
        self._evicted: dict[int, int] = {}

    def spent(self, stream: Stream) -> bool:
        """Whether no example is left to draw."""
        return len(self._evicted) >= stream.num_examples

    def draw(self, stream: Stream, count: int) -> tuple[list[Prompt], bool]:
        """Up to `count` prompts of one epoch, and whether that epoch is later than the last draw's."""
        drawn: list[Prompt] = []
        before = self._epoch
        while len(drawn) < count and not self.spent(stream):
            prompt = self._waiting or stream.next(1)[0]
            self._waiting = None
            if prompt.epoch != self._epoch and drawn:
                self._waiting = prompt
                break
            self._epoch = prompt.epoch
            if not self._is_out(prompt):
                drawn.append(prompt)
        return drawn, self._epoch != before

    def _is_out(self, prompt: Prompt) -> bool:
        """Whether the prompt's example was evicted in an earlier epoch."""
        return prompt.index in self._evicted and self._evicted[prompt.index] < prompt.epoch

    def note(self, prompt: Prompt, solved: bool) -> bool:
        """Counts epochs in a row in which the example was solved. Returns whether this pilot evicts it."""
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
        self._solved = unpack_table(state["solved"])
        self._evicted = unpack_table(state["evicted"])
