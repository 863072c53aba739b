"""`allocation.options`: how an allocator declares, reads and checks what it takes, and the options that many share."""

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
    """The fields of a subclass are an allocator's options, with their defaults; here there are none."""

    def violations(self, config: Config) -> Iterator[str]:
        """All that does not fit together, in words."""
        yield from ()


T = TypeVar("T", bound=AllocatorOptions)


def options_of(cls: type[T], config: Config) -> T:
    """The config's allocation.options as `cls`. Raises UserError where they are wrong."""
    options, problems = _parse(cls, config)
    raise_problems(problems)
    return options


def option_problems(config: Config) -> list[str]:
    """All that is wrong with the options of the allocator that the config names."""
    return _parse(getattr(ALLOCATORS[config.allocation.name], "Options", AllocatorOptions), config)[1]


def _parse(cls: type[T], config: Config) -> tuple[T, list[str]]:
    options, problems = parse_section(cls, config.allocation.options, "allocation.options.")
    return options, [*problems, *options.violations(config)]


# ---------------------------------------------------------------- checks


def unknown_choice(key: str, value: str, known: Sequence[str]) -> Iterator[str]:
    """The violation of allocation.options.`key` that is none of the known names, if so."""
    if value not in known:
        yield f"allocation.options.{key} = '{value}' is unknown ({nearest(value, known)})"


def too_small(key: str, value: int | float | None, least: int) -> Iterator[str]:
    """The violation of allocation.options.`key` below `least`, if so; None is a default of its own."""
    if value is not None and not value >= least:
        yield f"allocation.options.{key} must be at least {least}, got {value}"


def no_share(key: str, value: float) -> Iterator[str]:
    """The violation of allocation.options.`key` outside of [0, 1], if so."""
    if not 0 <= value <= 1:
        yield f"allocation.options.{key} must lie in [0, 1], got {value}"


# ---------------------------------------------------------------- shared options


@dataclasses.dataclass(frozen=True)
class OutcomeOptions(AllocatorOptions):
    """Options of an allocator that decides by what came of rollouts.

    Attributes:
      criterion: what a rollout's outcome is: raw "correctness", or the "reward" that training sees, for rewards that
        are graded (see `pods_jax.allocation.outcomes.CRITERIA`).
    """

    criterion: str = "correctness"

    def violations(self, config: Config) -> Iterator[str]:
        yield from unknown_choice("criterion", self.criterion, tuple(CRITERIA))


@dataclasses.dataclass(frozen=True)
class ChoiceOptions(OutcomeOptions):
    """Options of an allocator that draws candidates, of which rollout.num_prompts get rollouts.

    Attributes:
      candidates: prompts that are drawn for a step, at most an epoch; None: the allocator's multiple of
        rollout.num_prompts.
    """

    candidates: int | None = None

    def violations(self, config: Config) -> Iterator[str]:
        yield from super().violations(config)
        yield from too_small("candidates", self.candidates, config.rollout.num_prompts)


POLICIES = ("error", "train_partial", "stop")


@dataclasses.dataclass(frozen=True)
class FilterOptions(OutcomeOptions):
    """Options of an allocator that makes rounds until enough groups have passed.

    Attributes:
      candidates: prompts a round; None: the allocator's multiple of rollout.num_prompts.
      max_rounds: rounds in which a step must have its groups; on_exhausted: else "error", "train_partial" or "stop".
    """

    candidates: int | None = None
    max_rounds: int = 10
    on_exhausted: str = "error"

    def violations(self, config: Config) -> Iterator[str]:
        yield from super().violations(config)
        yield from too_small("candidates", self.candidates, 1)
        yield from unknown_choice("on_exhausted", self.on_exhausted, POLICIES)


def too_few_to_vary(config: Config) -> Iterator[str]:
    """The violation of rollout.num_generations below 2, if so."""
    if config.rollout.num_generations < 2:
        yield "rollout.num_generations must be at least 2: the correctness of one rollout can not vary"


def when_exhausted(policy: str, message: str, partial: Sequence[Group]) -> list[Group]:
    """The groups to train on all the same, where a step has too few.

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
