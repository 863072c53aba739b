"""The interface between the training loop and an allocator, and the parts that allocators are built from.

A step asks for requests, generates and verifies their rollouts, and reports the groups; it repeats that round until the
allocator hands over groups to train on. All state is on the host and goes through `state_dict`.

`rollout.num_prompts` and `rollout.num_generations` mean the same under every allocator: the number of prompts that a
step aims to train on, and the number of rollouts that one of them gets in all its stages (on average, where the
allocator varies it).
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from pods_jax.config.schema import Config
from pods_jax.groups import Group, Prompt, Request
from pods_jax.registry import Registry


class Exhausted(Exception):
    """The allocator's rules allow no more groups: the run ends in good order, with this message."""


@runtime_checkable
class Stream(Protocol):
    """The source of new prompts."""

    @property
    def num_examples(self) -> int:
        """The length of an epoch."""

    def next(self, count: int) -> list[Prompt]:
        """The next `count` prompts; crosses into the next epoch where one ends."""


@runtime_checkable
class Allocator(Protocol):
    """Host side, deterministic, checkpointable.

    A class that takes options names their dataclass, a subclass of `AllocatorOptions`, as its attribute `Options`.
    `asks_ahead = True` promises that steps have one round, and that `requests` may be called for the next step before
    `observe` of this one (and `state_dict` between the two), with the same result: `rollout.ahead` needs it.
    """

    def requests(self, stream: Stream) -> list[Request]:
        """The requests of the next round; their counts may differ. Raises Exhausted.

        There may be none if `observe([])` then hands over groups. Within a step, no two requests share a prompt's
        sample index (`Request.first`), or the second would repeat the first's rollouts.
        """

    def observe(self, groups: list[Group]) -> list[Group]:
        """Takes the groups of the last requests, in their order.

        Returns the groups to train on, of any number and any sizes (see `pods_jax.groups.joined`), or [] for another
        round. Raises Exhausted.
        """

    def held(self) -> Sequence[Group]:
        """The groups that it may still hand over; a group that is neither handed over nor held counts as discarded."""

    def metrics(self) -> dict[str, float]:
        """Counters (cumulative, part of the state) and gauges, under full metric names."""

    def state_dict(self) -> dict:
        """Everything that later decisions depend on: JSON-able values and numpy arrays, nested in dicts and lists.

        It is only called while no requests are under way: after `observe`, before the next `requests`.
        """

    def load_state_dict(self, state: dict) -> None:
        """Continues from the state that `state_dict` returned."""


ALLOCATORS: Registry[Callable[[Config], Allocator]] = Registry("allocation.name")

register = ALLOCATORS.register


def generator(seed: int, use: str, *counters: int) -> np.random.Generator:
    """A source of random numbers named by its arguments: equal arguments give equal numbers on every machine."""
    return np.random.default_rng([seed, zlib.crc32(use.encode()), *counters])


# ---------------------------------------------------------------- accounts


ROLLOUTS = ("rollouts_generated", "rollouts_handed_over", "rollouts_discarded")


class Accounts:
    """Counters by name, which only grow: the three of ROLLOUTS, and the allocator's own."""

    def __init__(self, names: Sequence[str]):
        self.counts = dict.fromkeys((*ROLLOUTS, *names), 0)

    def add(self, name: str, count: int = 1) -> None:
        """Raises KeyError for a name that was not given at the start."""
        self.counts[name] += count

    def add_rollouts(self, name: str, groups: Iterable[Group]) -> None:
        """Counts the groups' rollouts."""
        self.add(name, num_rollouts(groups))

    def metrics(self, held: Iterable[Group]) -> dict[str, float]:
        """All counters, and the number of rollouts in the groups that are held now, as "allocation/NAME"."""
        values = self.counts | {"rollouts_held": num_rollouts(held)}
        return {f"allocation/{name}": float(value) for name, value in values.items()}

    def state_dict(self) -> dict:
        return dict(self.counts)

    def load_state_dict(self, state: dict) -> None:
        self.counts.update(state)


def num_rollouts(groups: Iterable[Group]) -> int:
    """The number of rollouts of all the groups together."""
    return sum(len(g.rewards) for g in groups)


def age_metrics(batch: Sequence[Group]) -> dict[str, float]:
    """Mean and maximum, over the groups, of the steps between a group's oldest and newest policy; 0 for no groups."""
    ages = [int(np.ptp(g.policy_versions)) for g in batch] or [0]
    return {"allocation/age_mean": float(np.mean(ages)), "allocation/age_max": float(max(ages))}


# ---------------------------------------------------------------- steps of one round


class OneRound:
    """Base of allocators whose steps have one round, and train on all its groups.

    A subclass decides how many rollouts each prompt gets (`requests`), and learns from the groups (`learn`).

    Attributes:
      num_prompts: P; n: average number of rollouts of a prompt; accounts: the counters.
    """

    def __init__(self, config: Config, counters: Sequence[str] = ()):
        """counters: names of the subclass's own counters."""
        self.num_prompts = config.rollout.num_prompts
        self.n = config.rollout.num_generations
        self.accounts = Accounts(counters)

    def requests(self, stream: Stream) -> list[Request]:
        raise NotImplementedError

    def learn(self, groups: Sequence[Group]) -> None:
        """Learns from a step's groups before they are trained on."""
        raise NotImplementedError

    def observe(self, groups: list[Group]) -> list[Group]:
        self.accounts.add_rollouts("rollouts_generated", groups)
        self.accounts.add_rollouts("rollouts_handed_over", groups)
        self.learn(groups)
        return groups

    def held(self) -> list[Group]:
        return []

    def metrics(self) -> dict[str, float]:
        return self.accounts.metrics(held=[])

    def state_dict(self) -> dict:
        return {"accounts": self.accounts.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self.accounts.load_state_dict(state["accounts"])


class Choosing(OneRound):
    """Base of allocators that draw candidates, of which P get rollouts; the others come again in the next epoch."""

    def __init__(self, config: Config):
        super().__init__(config, ("candidates", "passed_over"))

    def draw(self, stream: Stream, count: int) -> list[Prompt]:
        """`count` candidates: at most an epoch of them, and at least P."""
        drawn = stream.next(max(min(count, stream.num_examples), self.num_prompts))
        self.accounts.add("candidates", len(drawn))
        self.accounts.add("passed_over", len(drawn) - self.num_prompts)
        return drawn
