"""Pilot-Commit (Kim et al. 2026, arXiv 2605.26606): most rollouts go to prompts whose rewards vary."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from pods_jax.allocation.base import POLICIES, Options, options_of, register, too_small, unknown_choice
from pods_jax.allocation.buffer import ORDERS
from pods_jax.allocation.outcomes import counts_within
from pods_jax.allocation.two_stage import Plan, TwoStage, solved_at
from pods_jax.config.schema import Config
from pods_jax.groups import Group, subset


@dataclasses.dataclass(frozen=True)
class PilotCommitOptions(Options):
    """Defaults are those of the paper's published runs, or of its code where the runs differ among themselves.

    Attributes:
      n_pilot: rollouts of a candidate; None: a quarter of rollout.num_generations.
      n_commit: further rollouts of a prompt that passed; None: what rollout.num_generations leaves. A trained group has
        rollout.num_generations rollouts.
      n_effective: how many of the pilot's rollouts stay in the group; None: all.
      pilot_selection: which ones: "max_variance" (as many right as wrong, where there are) or "first".
      candidates: pilots a round; None: 3 x rollout.num_prompts.
      p_lower, p_upper: success rates of the pilot between which a prompt passes, both inclusive. The authors' code has
        `diversity_threshold_lower`, which is p_lower, and `diversity_threshold_upper`, which is 1 - p_upper.
      p_solve: success rate from which a pilot counts as solved; None: nothing is evicted.
      evict_after_k_solved: an example that was solved in so many epochs in a row is evicted, from the next epoch on.
      buffer_size: prompts that may wait; beyond it, the one that was added first leaves.
      buffer_sampling: who leaves the buffer first: "random", "max_variance", "most_recent" or "least_recent".
      max_staleness: how many steps older than its commit a pilot may be, exactly.
      clear_at_epoch_end: discard what waits when an epoch ends, as the authors' code does.
      max_rounds: rounds in which a step must have its groups; on_exhausted: else "error", "train_partial" or "stop".
    """

    n_pilot: int | None = None
    n_commit: int | None = None
    n_effective: int | None = None
    pilot_selection: str = "max_variance"
    candidates: int | None = None
    p_lower: float = 0.125
    p_upper: float = 0.75
    p_solve: float | None = 1.0
    evict_after_k_solved: int = 1
    buffer_size: int = 100_000
    buffer_sampling: str = "random"
    max_staleness: int = 4
    clear_at_epoch_end: bool = True
    max_rounds: int = 10
    on_exhausted: str = "error"

    def sizes(self, n: int) -> tuple[int, int, int]:
        """Rollouts of the pilot, of those that are kept, and of the commit, for groups of n."""
        pilot = n // 4 if self.n_pilot is None else self.n_pilot
        kept = pilot if self.n_effective is None else self.n_effective
        return pilot, kept, n - kept if self.n_commit is None else self.n_commit

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
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
        yield from too_small("candidates", self.candidates, 1)
        yield from too_small("evict_after_k_solved", self.evict_after_k_solved, 1)
        yield from too_small("buffer_size", self.buffer_size, 1)
        yield from too_small("max_staleness", self.max_staleness, 0)
        yield from too_small("max_rounds", self.max_rounds, 2)
        yield from unknown_choice("pilot_selection", self.pilot_selection, tuple(PILOT_SELECTIONS))
        yield from unknown_choice("buffer_sampling", self.buffer_sampling, tuple(ORDERS))
        yield from unknown_choice("on_exhausted", self.on_exhausted, POLICIES)


@register("pilot_commit")
class PilotCommit(TwoStage):
    """See `docs/allocation.md` for its rules at the boundaries."""

    Options = PilotCommitOptions

    def __init__(self, config: Config):
        o = options_of(PilotCommitOptions, config)
        pilot, kept, commit = o.sizes(config.rollout.num_generations)
        plan = Plan(
            num_prompts=config.rollout.num_prompts,
            candidates=3 * config.rollout.num_prompts if o.candidates is None else o.candidates,
            n_pilot=pilot,
            n_commit=commit,
            thin=functools.partial(_thin, count=kept, choose=PILOT_SELECTIONS[o.pilot_selection]),
            band=functools.partial(counts_within, o.p_lower, o.p_upper),
            solved=solved_at(o.p_solve),
            evict_after=o.evict_after_k_solved,
            buffer_size=o.buffer_size,
            buffer_order=o.buffer_sampling,
            max_staleness=o.max_staleness,
            clear_at_epoch_end=o.clear_at_epoch_end,
            max_rounds=o.max_rounds,
            on_exhausted=o.on_exhausted,
        )
        super().__init__("pilot_commit", plan, config.seed)

    def advice(self) -> str:
        return (
            "Raise allocation.options.candidates or max_rounds, widen p_lower..p_upper, or set clear_at_epoch_end = "
            "False where an epoch has only a few rounds"
        )


def _thin(pilot: Group, count: int, choose: Callable[[np.ndarray, int], np.ndarray]) -> Group:
    return pilot if count == len(pilot.rewards) else subset(pilot, choose(np.asarray(pilot.correct) >= 1, count))


def most_varied(correct: np.ndarray, count: int) -> np.ndarray:
    """The places of `count` of the rollouts, as many right as wrong where there are; the first of each kind.

    The variance of 0/1 values is largest for equal shares, so this is its maximum over all subsets of that size.
    """
    right, wrong = np.flatnonzero(correct), np.flatnonzero(~correct)
    from_right = min(len(right), max(count // 2, count - len(wrong)))
    return np.sort(np.concatenate([right[:from_right], wrong[: count - from_right]]))


def _first(correct: np.ndarray, count: int) -> np.ndarray:
    return np.arange(count)


PILOT_SELECTIONS = {"max_variance": most_varied, "first": _first}
