"""Prompt curriculum (Gao et al. 2025, arXiv 2510.01135): takes the candidates of predicted value near 1/2."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pods_jax.allocation.base import Choosing, Stream, register
from pods_jax.allocation.options import ChoiceOptions, no_share, options_of, too_small
from pods_jax.allocation.outcomes import success_rates
from pods_jax.allocation.predictors import ValueModel, embed
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request


@dataclasses.dataclass(frozen=True)
class PromptCurriculumOptions(ChoiceOptions):
    """The target is the paper's; the default of 4 x rollout.num_prompts candidates is unverified; the model is ours.

    Attributes:
      target: the success rate that candidates should have.
      learning_rate: step size of the value model's gradient descent.
      num_updates: gradient steps on the value model after each training step.
      embedding_size: coordinates of a prompt's embedding (see `pods_jax.allocation.predictors.embed`).
    """

    target: float = 0.5
    learning_rate: float = 2.0
    num_updates: int = 8
    embedding_size: int = 64

    def violations(self, config: Config) -> Iterator[str]:
        yield from super().violations(config)
        yield from no_share("target", self.target)
        yield from too_small("num_updates", self.num_updates, 1)
        yield from too_small("embedding_size", self.embedding_size, 1)
        if not self.learning_rate > 0:
            yield f"allocation.options.learning_rate must be positive, got {self.learning_rate}"


@register("prompt_curriculum")
class PromptCurriculum(Choosing):
    """P of the candidates get n rollouts each; the others are passed over until the stream gives them again.

    A value model predicts each candidate's success rate from its tokens; the P predictions nearest to the target are
    taken (the distance |V - target| is unverified). After each step the model is trained on the observed rates, by
    squared error. The authors' model is a language model of the policy's size. Here it is a logistic regression on
    hashed counts of tokens, which costs nothing, but knows only these counts.
    """

    Options = PromptCurriculumOptions

    def __init__(self, config: Config):
        super().__init__(config)
        self._options = options_of(PromptCurriculumOptions, config)
        o = self._options
        self._model = ValueModel(o.embedding_size, o.learning_rate, o.num_updates)

    def requests(self, stream: Stream) -> list[Request]:
        o = self._options
        drawn = self.draw(stream, 4 * self.num_prompts if o.candidates is None else o.candidates)
        distances = np.abs(self._model.predict(embed(drawn, o.embedding_size)) - o.target)
        nearest = np.argsort(distances, kind="stable")[: self.num_prompts]
        return [Request(drawn[i], self.n) for i in nearest]

    def learn(self, groups: Sequence[Group]) -> None:
        seen, rates = success_rates(groups, self._options.criterion)
        if seen:
            self._model.observe(embed(seen, self._options.embedding_size), rates)

    def state_dict(self) -> dict:
        return super().state_dict() | {"model": self._model.state_dict()}

    def load_state_dict(self, state: Mapping) -> None:
        super().load_state_dict(state)
        self._model.load_state_dict(state["model"])
