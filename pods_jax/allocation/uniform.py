"""The same number of rollouts for every prompt: GRPO and PODS."""

from pods_jax.allocation.base import Stream, register
from pods_jax.config import Config
from pods_jax.records import Group, Request


@register("uniform")
class Uniform:
    """num_prompts new prompts a step, num_generations rollouts each, every group trained on."""

    def __init__(self, config: Config):
        self._sizes = config.rollout

    def requests(self, stream: Stream) -> list[Request]:
        return [Request(p, self._sizes.num_generations) for p in stream.next(self._sizes.num_prompts)]

    def observe(self, groups: list[Group]) -> list[Group]:
        return groups

    def held(self) -> list[Group]:
        return []

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state: dict) -> None:
        """There is none."""
