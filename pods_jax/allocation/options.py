"""`allocation.options`: declaring, reading and checking an allocator's options, and the options that many share."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pods_jax.allocation.base import ALLOCATORS, Exhausted
from pods_jax.allocation.outcomes import CRITERIA
from pods_jax.config.schema import Config, parse_section, raise_problems
from pods_jax.errors import UserError
from pods_jax.groups import Group
from pods_jax.registry import nearest


@dataclasses.dataclass(frozen=True)
class AllocatorOptions:
    """Base of the options of an allocator: the fields of a subclass are the options, with their defaults."""

    def violations(self, config: Config) -> Iterator[str]:
        """Messages about values that are out of range or do not fit each other."""
        yield from ()


T = TypeVar("T", bound=AllocatorOptions)


def options_of(cls: type[T], config: Config) -> T:
    """The config's allocation.options as an instance of `cls`. Raises UserError if any is wrong."""
    options, problems = _parse(cls, config)
    raise_problems(problems)
    return options


def option_problems(config: Config) -> list[str]:
    """Messages about the options of the allocator that the config names; none if all are right."""
    return _parse(getattr(ALLOCATORS[config.allocation.name], "Options", AllocatorOptions), config)[1]


def _parse(cls: type[T], config: Config) -> tuple[T, list[str]]:
    options, problems = parse_section(cls, config.allocation.options, "allocation.options.")
    return options, [*problems, *options.violations(config)]


# ---------------------------------------------------------------- checks


def unknown_choice(key: str, value: str, known: Sequence[str]) -> Iterator[str]:
    """A message if the value of allocation.options.`key` is none of the known names."""
    if value not in known:
        yield f"allocation.options.{key} = '{value}' is unknown ({nearest(value, known)})"


def too_small(key: str, value: int | float | None, least: int) -> Iterator[str]:
    """A message if the value of allocation.options.`key` is below `least`; None stands for a default, and passes."""
    if value is not None and not value >= least:
        yield f"allocation.options.{key} must be at least {least}, got {value}"


def no_share(key: str, value: float) -> Iterator[str]:
    """A message if the value of allocation.options.`key` lies outside of [0, 1]."""
    if not 0 <= value <= 1:
        yield f"allocation.options.{key} must lie in [0, 1], got {value}"


# ---------------------------------------------------------------- shared options


@dataclasses.dataclass(frozen=True)
class OutcomeOptions(AllocatorOptions):
    """Options of an allocator that decides by the outcomes of rollouts.

    Attributes:
      criterion: the outcome of a rollout: its raw "correctness", or the "reward" that training sees, for graded
        rewards (see `pods_jax.allocation.outcomes.CRITERIA`).
    """

    criterion: str = "correctness"

    def violations(self, config: Config) -> Iterator[str]:
        yield from unknown_choice("criterion", self.criterion, tuple(CRITERIA))


@dataclasses.dataclass(frozen=True)
class ChoiceOptions(OutcomeOptions):
    """Options of an allocator that draws candidates, of which rollout.num_prompts get rollouts.

    Attributes:
      candidates: number of prompts drawn for a step, at most an epoch; None: the allocator's multiple of
        rollout.num_prompts.
    """

    candidates: int | None = None

    def violations(self, config: Config) -> Iterator[str]:
        yield from super().violations(config)
        yield from too_small("candidates", self.candidates, config.rollout.num_prompts)


POLICIES = ("error", "train_partial", "stop")


@dataclasses.dataclass(frozen=True)
class FilterOptions(OutcomeOptions):
    """Options of an allocator that generates rounds until enough groups have passed.

    Attributes:
      candidates: prompts of a round; None: the allocator's multiple of rollout.num_prompts.
      max_rounds: largest number of rounds of a step.
      on_exhausted: "error", "train_partial" or "stop", for a step that still has too few groups (`when_exhausted`).
    """

    candidates: int | None = None
    max_rounds: int = 10
    on_exhausted: str = "error"

    def violations(self, config: Config) -> Iterator[str]:
        yield from super().violations(config)
        yield from too_small("candidates", self.candidates, 1)
        yield from unknown_choice("on_exhausted", self.on_exhausted, POLICIES)


def too_few_to_vary(config: Config) -> Iterator[str]:
    """A message if rollout.num_generations is below 2."""
    if config.rollout.num_generations < 2:
        yield "rollout.num_generations must be at least 2: the correctness of one rollout can not vary"


def when_exhausted(policy: str, message: str, partial: Sequence[Group]) -> list[Group]:
    """The groups that a step with too few of them trains on.

    Args:
      policy: "error", "train_partial" or "stop"; without any group, "train_partial" means "stop".
      message: the reason why there are no more groups, and the options that can be changed.
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
