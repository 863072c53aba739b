"""SPEED (Zhang et al. 2025, arXiv 2506.09016): a few rollouts screen each prompt, the rest continue the mixed ones."""

import dataclasses
from collections.abc import Iterator

from pods_jax.allocation.base import POLICIES, Options, options_of, register, too_small, unknown_choice
from pods_jax.allocation.two_stage import Plan, TwoStage, solved_at
from pods_jax.config.schema import Config
from pods_jax.groups import Group


@dataclasses.dataclass(frozen=True)
class SpeedOptions(Options):
    """Defaults are those of the authors' code.

    Attributes:
      n_init: rollouts that screen a prompt.
      n_continue: the further ones of a prompt that qualifies; None: what rollout.num_generations leaves.
      candidates: prompts screened a round; None: 4 x rollout.num_prompts.
      max_rounds: rounds in which a step must have its groups; on_exhausted: else "error", "train_partial" or "stop".
    """

    n_init: int = 4
    n_continue: int | None = None
    candidates: int | None = None
    max_rounds: int = 50
    on_exhausted: str = "error"

    def n_continued(self, n: int) -> int:
        """Rollouts of the second stage, for groups of n."""
        return n - self.n_init if self.n_continue is None else self.n_continue

    def violations(self, config: Config) -> Iterator[str]:
        n, more = config.rollout.num_generations, self.n_continued(config.rollout.num_generations)
        if more < 1 or self.n_init + more != n:
            yield (
                f"allocation.options: {self.n_init} n_init + {more} n_continue rollouts must be "
                f"rollout.num_generations = {n}, with at least one to continue"
            )
        yield from too_small("n_init", self.n_init, 2)
        yield from too_small("candidates", self.candidates, 1)
        yield from too_small("max_rounds", self.max_rounds, 2)
        yield from unknown_choice("on_exhausted", self.on_exhausted, POLICIES)


@register("speed")
class Speed(TwoStage):
    """Screens and continues in one generation, as Pilot-Commit, with the band 0 < success rate < 1.

    A prompt that qualified waits without a bound on its age, the longest waiting one is continued first, nothing is
    evicted, and epochs end without effect. Our reading, where the paper leaves it open: new prompts are screened only
    while fewer than a step's worth of them would wait after this round's continuations.
    """

    Options = SpeedOptions

    def __init__(self, config: Config):
        o = options_of(SpeedOptions, config)
        plan = Plan(
            num_prompts=config.rollout.num_prompts,
            candidates=4 * config.rollout.num_prompts if o.candidates is None else o.candidates,
            n_pilot=o.n_init,
            n_commit=o.n_continued(config.rollout.num_generations),
            thin=_all,
            band=_mixed,
            solved=solved_at(None),
            evict_after=1,
            buffer_size=100_000,
            buffer_order="least_recent",
            max_staleness=None,
            clear_at_epoch_end=False,
            max_rounds=o.max_rounds,
            on_exhausted=o.on_exhausted,
        )
        super().__init__("speed", plan, config.seed)

    def wanted(self) -> int:
        after = len(self._buffer) - (self._plan.num_prompts - len(self._batch))
        return self._plan.candidates if after < self._plan.num_prompts else 0


def _all(pilot: Group) -> Group:
    return pilot


def _mixed(n: int) -> tuple[int, int]:
    return 1, n - 1
