"""The interface between the loop and an allocator.

A step asks for requests, generates and verifies them, and reports the groups; it repeats that until the allocator hands
over groups to train on. All state is on the host and goes through `state_dict`.

`rollout.num_prompts` and `rollout.num_generations` mean the same under every allocator: how many prompts a step aims to
train on, and how many rollouts one of them gets in all its stages (on average, where the allocator varies it).
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from pods_jax.config.schema import Config, parse_section, raise_problems
from pods_jax.errors import UserError
from pods_jax.groups import Group, Prompt, Request
from pods_jax.registry import Registry, nearest


class Exhausted(Exception):
    """No more groups can be had under the allocator's rules; the run ends in good order, with this message."""


@runtime_checkable
class Stream(Protocol):
    """Where new prompts come from."""

    @property
    def num_examples(self) -> int: ...

    def next(self, count: int) -> list[Prompt]: ...


@runtime_checkable
class Allocator(Protocol):
    """Host side, deterministic, checkpointable.

    A class that takes options names their dataclass, a subclass of `Options`, as its attribute `Options`.
    """

    def requests(self, stream: Stream) -> list[Request]:
        """What to generate next; counts may differ. Raises Exhausted.

        There may be none if `observe([])` then hands over groups. Within a step, no two requests share a prompt's
        sample index (`Request.first`), or the second would repeat the first's rollouts.
        """

    def observe(self, groups: list[Group]) -> list[Group]:
        """Takes the groups of the last requests, in their order.

        Returns the groups to train on, of any number and any sizes (see `pods_jax.groups.joined`), or [] for another
        round. Raises Exhausted.
        """

    def held(self) -> Sequence[Group]:
        """What it may still hand over; all that was neither handed over nor is held counts as discarded."""

    def metrics(self) -> dict[str, float]:
        """Its counters (cumulative, part of its state) and gauges, under full metric names."""

    def state_dict(self) -> dict:
        """All that decides the future: JSON-able values and numpy arrays, nested in dicts and lists.

        To be taken while no requests are under way: after `observe`, before the next `requests`.
        """

    def load_state_dict(self, state: dict) -> None:
        """Goes on from where `state_dict` was taken."""


ALLOCATORS: Registry[Callable[[Config], Allocator]] = Registry("allocation.name")

register = ALLOCATORS.register


@dataclasses.dataclass(frozen=True)
class Options:
    """What an allocator takes as allocation.options: none here, a subclass's fields otherwise, with their defaults."""

    def violations(self, config: Config) -> Iterator[str]:
        """What does not fit together, in words."""
        yield from ()


T = TypeVar("T", bound=Options)


def options_of(cls: type[T], config: Config) -> T:
    """The config's allocation.options as `cls`. Raises UserError where they are wrong."""
    options, problems = _parse(cls, config)
    raise_problems(problems)
    return options


def option_problems(config: Config) -> list[str]:
    """What is wrong with the options of the allocator that the config names."""
    return _parse(getattr(ALLOCATORS[config.allocation.name], "Options", Options), config)[1]


def _parse(cls: type[T], config: Config) -> tuple[T, list[str]]:
    options, problems = parse_section(cls, config.allocation.options, "allocation.options.")
    return options, [*problems, *options.violations(config)]


# ---------------------------------------------------------------- too few groups


POLICIES = ("error", "train_partial", "stop")


def when_exhausted(policy: str, message: str, partial: Sequence[Group]) -> list[Group]:
    """The groups to train on all the same.

    Args:
      policy: "error", "train_partial" or "stop"; with nothing to train on, "train_partial" is "stop".
      message: why there are no more, and what else can be changed.
      partial: the step's groups so far.

    Raises:
      UserError: under "error".
      Exhausted: under "stop": the run ends in good order.
    """
    if policy == "train_partial" and partial:
        return list(partial)
    if policy == "error":
        raise UserError(f"{message}. Or set allocation.options.on_exhausted to 'train_partial' or 'stop'")
    raise Exhausted(message)


# ---------------------------------------------------------------- checks of options


def unknown_choice(key: str, value: str, known: Sequence[str]) -> Iterator[str]:
    """The violation of allocation.options.`key` that is none of the known names, if so."""
    if value not in known:
        yield f"allocation.options.{key} = '{value}' is unknown ({nearest(value, known)})"


def too_small(key: str, value: int | float | None, least: int) -> Iterator[str]:
    """The violation of allocation.options.`key` below `least`, if so; None is a default of its own."""
    if value is not None and not value >= least:
        yield f"allocation.options.{key} must be at least {least}, got {value}"


# ---------------------------------------------------------------- accounts


ROLLOUTS = ("rollouts_generated", "rollouts_handed_over", "rollouts_discarded")


class Accounts:
    """Counters that only grow, by name: the three of ROLLOUTS, and the allocator's own."""

    def __init__(self, names: Sequence[str]):
        self.counts = dict.fromkeys((*ROLLOUTS, *names), 0)

    def add(self, name: str, count: int = 1) -> None:
        """Raises KeyError for a name that was not given at the start."""
        self.counts[name] += count

    def add_rollouts(self, name: str, groups: Iterable[Group]) -> None:
        """Counts the groups' rollouts."""
        self.add(name, num_rollouts(groups))

    def metrics(self, held: Iterable[Group]) -> dict[str, float]:
        """All counters, and how many rollouts are in the groups held now, as "allocation/NAME"."""
        values = self.counts | {"rollouts_held": num_rollouts(held)}
        return {f"allocation/{name}": float(value) for name, value in values.items()}

    def state_dict(self) -> dict:
        return dict(self.counts)

    def load_state_dict(self, state: dict) -> None:
        self.counts.update(state)


def num_rollouts(groups: Iterable[Group]) -> int:
    """How many rollouts the groups have together."""
    return sum(len(g.rewards) for g in groups)


# ---------------------------------------------------------------- random numbers


def generator(seed: int, use: str, *counters: int) -> np.random.Generator:
    """The same numbers for the same arguments, on every machine; different ones for any other."""
    return np.random.default_rng([seed, zlib.crc32(use.encode()), *counters])
