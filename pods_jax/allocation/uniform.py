"""The same number of rollouts for every prompt: GRPO and PODS."""

import dataclasses
from collections.abc import Iterator

from pods_jax.allocation.base import Stream, register
from pods_jax.allocation.options import AllocatorOptions, options_of
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request


@dataclasses.dataclass(frozen=True)
class UniformOptions(AllocatorOptions):
    """Options of `Uniform`.

    Attributes:
      groups_per_prompt: number of a step's num_prompts groups that each prompt gets. They are selected and normalised
        apart, as in the multi-device code of the PODS authors (arXiv 2504.13818).
    """

    groups_per_prompt: int = 1

    def violations(self, config: Config) -> Iterator[str]:
        if self.groups_per_prompt < 1 or config.rollout.num_prompts % self.groups_per_prompt:
            yield (
                f"allocation.options.groups_per_prompt = {self.groups_per_prompt} must divide rollout.num_prompts = "
                f"{config.rollout.num_prompts}"
            )


@register("uniform")
class Uniform:
    """num_prompts groups of num_generations rollouts a step, all trained on; by default each is of a new prompt."""

    Options = UniformOptions
    asks_ahead = True

    def __init__(self, config: Config):
        self._sizes = config.rollout
        self._repeats = options_of(UniformOptions, config).groups_per_prompt

    def requests(self, stream: Stream) -> list[Request]:
        n = self._sizes.num_generations
        prompts = stream.next(self._sizes.num_prompts // self._repeats)
        return [Request(p, n, first=n * i) for p in prompts for i in range(self._repeats)]

    def observe(self, groups: list[Group]) -> list[Group]:
        return groups

    def held(self) -> list[Group]:
        return []

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Does nothing: there is no state."""
