"""DAPO's dynamic sampling (Yu et al. 2025, arXiv 2503.14476, section 3.2)."""

import dataclasses
from collections.abc import Iterator

from pods_jax.allocation.base import POLICIES, Options, Stream, options_of, register, too_small, unknown_choice
from pods_jax.allocation.resampling import Resampling
from pods_jax.config.schema import Config
from pods_jax.groups import Prompt


@dataclasses.dataclass(frozen=True)
class DynamicSamplingOptions(Options):
    """Defaults are those of the authors' run of 512 prompts a step.

    Attributes:
      candidates: prompts a round; None: 3 x rollout.num_prompts.
      max_rounds: rounds in which a step must have its groups; on_exhausted: else "error", "train_partial" or "stop".
      surplus: groups that vary beyond rollout.num_prompts are thrown away ("discard", as DAPO does), or up to
        num_prompts - 1 of them are trained on in the next step ("keep"), one step old.
    """

    candidates: int | None = None
    max_rounds: int = 10
    on_exhausted: str = "error"
    surplus: str = "discard"

    def violations(self, config: Config) -> Iterator[str]:
        if config.rollout.num_generations < 2:
            yield "rollout.num_generations must be at least 2: the correctness of one rollout can not vary"
        yield from too_small("candidates", self.candidates, 1)
        yield from too_small("max_rounds", self.max_rounds, 1)
        yield from unknown_choice("on_exhausted", self.on_exhausted, POLICIES)
        yield from unknown_choice("surplus", self.surplus, ("discard", "keep"))


@register("dynamic_sampling")
class DynamicSampling(Resampling):
    """Trains on groups with rollouts that are right and rollouts that are wrong; draws new prompts until it has P."""

    Options = DynamicSamplingOptions

    def __init__(self, config: Config):
        o = options_of(DynamicSamplingOptions, config)
        super().__init__("dynamic_sampling", config, o.max_rounds, o.on_exhausted, keep_surplus=o.surplus == "keep")
        self._count = 3 * config.rollout.num_prompts if o.candidates is None else o.candidates

    def candidates(self, stream: Stream) -> list[Prompt]:
        return stream.next(self._count)
