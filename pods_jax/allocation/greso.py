"""GRESO (Zheng et al. 2025, arXiv 2506.02177): skips, at random, prompts whose rewards did not vary lately."""

import dataclasses
import math
from collections.abc import Iterator, Mapping

from pods_jax.allocation.base import Stream, generator, register
from pods_jax.allocation.dynamic_sampling import Resampling
from pods_jax.allocation.options import FilterOptions, no_share, options_of, too_few_to_vary, too_small
from pods_jax.buckets import ceil_div
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Prompt, pack_table, unpack_table

TYPES = ("too_easy", "too_hard")


@dataclasses.dataclass(frozen=True)
class GresoOptions(FilterOptions):
    """Defaults are those of the authors' code, whose steps have 256 prompts.

    Attributes:
      p_initial: p_easy and p_hard at the start.
      p_step: their change after each step; p_least, p_most: their bounds.
      p_explore: smallest probability that a prompt is not skipped.
      target: the wanted share of groups without variance; easy_share: the part of it that is for easy prompts.
      candidates: prompts of a step's first round; None: 1.5 x rollout.num_prompts.
      least_candidates: smallest number of prompts of a later round; None: a quarter of rollout.num_prompts.
      margin: factor on the number of prompts that a later round is expected to need.
    """

    p_initial: float = 0.5
    p_step: float = 0.01
    p_least: float = 0.05
    p_most: float = 0.95
    p_explore: float = 0.01
    target: float = 0.25
    easy_share: float = 1 / 3
    least_candidates: int | None = None
    margin: float = 1.25

    def violations(self, config: Config) -> Iterator[str]:
        yield from too_few_to_vary(config)
        yield from super().violations(config)
        if not 0 <= self.p_least <= self.p_initial <= self.p_most <= 1:
            yield "allocation.options: 0 <= p_least <= p_initial <= p_most <= 1 must hold"
        for name in ("p_explore", "p_step", "target", "easy_share"):
            yield from no_share(name, getattr(self, name))
        yield from too_small("least_candidates", self.least_candidates, 1)
        yield from too_small("margin", self.margin, 1)
        yield from too_small("max_rounds", self.max_rounds, 1)


@register("greso")
class Greso(Resampling):
    """Draws prompts, skips some of them by their history, and trains on the groups that vary.

    A prompt that was all right in its last z epochs is skipped with probability 1 - max(p_easy ** z, p_explore); one
    that was all wrong, with p_hard in place of p_easy. After each step, p_easy falls by p_step if at least the wanted
    share of the step's candidates were all right, else it rises by p_step; p_hard likewise.

    Our reading, where the paper leaves it open:
    - The shares are of all candidates of the step. p_easy and p_hard change when the step's groups are handed over,
      from the second epoch on: before that there is no history.
    - A later round draws margin x (groups still needed) / (the step's share of candidates that varied) prompts, at
      most as many as the first round.
    - A round looks at no more prompts than the data set has, so a data set that is skipped as a whole ends the step.
    - A group without a finite reward leaves the history as it is. Groups that the step does not need are discarded.
    """

    Options = GresoOptions

    def __init__(self, config: Config):
        o = options_of(GresoOptions, config)
        super().__init__("greso", config, o, counters=["skipped"])
        self._seed = config.seed
        self._p = dict.fromkeys(TYPES, o.p_initial)
        self._rows: dict[str, dict[int, int]] = {name: {} for name in TYPES}
        self._seen = dict.fromkeys((*TYPES, "passed", "invalid"), 0)
        self._epoch = 0

    # ---------------------------------------------------------------- candidates

    def candidates(self, stream: Stream) -> list[Prompt]:
        drawn: list[Prompt] = []
        wanted = self._wanted()
        for _ in range(max(stream.num_examples, wanted)):
            (prompt,) = stream.next(1)
            self._epoch = prompt.epoch
            if self._skips(prompt):
                self.accounts.add("skipped")
            else:
                drawn.append(prompt)
            if len(drawn) == wanted:
                break
        return drawn

    def _wanted(self) -> int:
        """The number of prompts of the next round."""
        o = self._options
        first = math.ceil(1.5 * self.num_prompts) if o.candidates is None else o.candidates
        total = sum(self._seen.values())
        if not total:
            return first
        least = ceil_div(self.num_prompts, 4) if o.least_candidates is None else o.least_candidates
        missing = self.num_prompts - len(self.batch)
        expected = missing * total / max(self._seen["passed"], 1)
        return min(max(math.ceil(o.margin * expected), least), max(first, least))

    def _skips(self, prompt: Prompt) -> bool:
        chance = 1.0
        for name in TYPES:
            chance *= self._p[name] ** self._rows[name].get(prompt.index, 0)
        u = generator(self._seed, "greso", prompt.uid).random()
        return bool(u >= max(chance, self._options.p_explore))

    # ---------------------------------------------------------------- history

    def note(self, group: Group, kind: str) -> None:
        index = group.request.prompt.index
        self._seen[kind] += 1
        if kind == "invalid":
            return
        for name in TYPES:
            row = self._rows[name].pop(index, 0)
            if name == kind:
                self._rows[name][index] = row + 1

    def observe(self, groups: list[Group]) -> list[Group]:
        ready = super().observe(groups)
        if ready:
            self._adapt()
        return ready

    def _adapt(self) -> None:
        o = self._options
        total = sum(self._seen.values())
        targets = {"too_easy": o.target * o.easy_share, "too_hard": o.target * (1 - o.easy_share)}
        for name in TYPES if self._epoch > 0 else ():
            change = -o.p_step if self._seen[name] >= targets[name] * total else o.p_step
            self._p[name] = min(max(self._p[name] + change, o.p_least), o.p_most)
        self._seen = dict.fromkeys(self._seen, 0)

    # ---------------------------------------------------------------- accounts and state

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {
            "allocation/p_easy": self._p["too_easy"],
            "allocation/p_hard": self._p["too_hard"],
        }

    def state_dict(self) -> dict:
        return super().state_dict() | {
            "p": dict(self._p),
            "rows": {name: pack_table(table) for name, table in self._rows.items()},
            "seen": dict(self._seen),
        }

    def load_state_dict(self, state: Mapping) -> None:
        super().load_state_dict(state)
        self._p = dict(state["p"])
        self._seen = dict(state["seen"])
        self._rows = {name: unpack_table(table) for name, table in state["rows"].items()}
