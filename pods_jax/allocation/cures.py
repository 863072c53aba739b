"""CurES (Zeng et al. 2025, arXiv 2510.01037): prompts are drawn, and rollouts dealt, by posterior success rates."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pods_jax.allocation.base import Choosing, Stream, generator, register
from pods_jax.allocation.options import ChoiceOptions, options_of, too_small
from pods_jax.allocation.outcomes import outcome_of
from pods_jax.allocation.predictors import BetaPosteriors
from pods_jax.allocation.vip import least_sum
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Prompt, Request


@dataclasses.dataclass(frozen=True)
class CuresOptions(ChoiceOptions):
    """A step has 4 x rollout.num_prompts candidates by default, which is our choice.

    Attributes:
      temperature: divides the exponent of a candidate's weight exp(sqrt(p (1 - p)) / temperature); None: 100 (1 + the
        example's successes so far), as in the authors' code, where the draw is nearly uniform.
      n_min: smallest number of rollouts of a prompt. The bound is ours; the authors' code has none.
    """

    temperature: float | None = None
    n_min: int = 2

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
        yield from super().violations(config)
        if self.temperature is not None and not self.temperature > 0:
            yield f"allocation.options.temperature must be positive or None, got {self.temperature}"
        yield from too_small("n_min", self.n_min, 2)
        if self.n_min > n:
            yield f"allocation.options.n_min = {self.n_min} exceeds rollout.num_generations = {n}"


@register("cures")
class Cures(Choosing):
    """P of the candidates, drawn by weight without replacement, get P x n rollouts in sum; the others are passed over.

    An example's success rate p is the mean of its Beta posterior over all its rollouts so far. A prompt's weight grows
    with sqrt(p (1 - p)), and so does its number of rollouts, in proportion.

    Our choices: the authors draw from the whole data set, here the stream gives the candidates; and no rollouts are
    spent on the posteriors before training. The authors' numbers of rollouts are proportional to the deviation of the
    gradient, for which they measure gradient norms of right and wrong rollouts. Where all norms are equal, that
    deviation is sqrt(p (1 - p)) (derived from their code; the paper's equations are unverified).
    """

    Options = CuresOptions

    def __init__(self, config: Config):
        super().__init__(config)
        self._options = options_of(CuresOptions, config)
        self._seed = config.seed
        self._posteriors = BetaPosteriors()

    def requests(self, stream: Stream) -> list[Request]:
        count = self._options.candidates
        chosen = self._chosen(self.draw(stream, 4 * self.num_prompts if count is None else count))
        counts = in_proportion(np.array([self._deviation(p) for p in chosen]), self.n, self._options.n_min)
        return [Request(prompt, int(count)) for prompt, count in zip(chosen, counts, strict=True)]

    def _chosen(self, drawn: Sequence[Prompt]) -> list[Prompt]:
        exponents = np.array([self._deviation(p) / self._temperature(p) for p in drawn])
        weights = np.exp(exponents - exponents.max())
        rng = generator(self._seed, "cures", drawn[0].uid)
        places = rng.choice(len(drawn), self.num_prompts, replace=False, p=weights / weights.sum())
        return [drawn[i] for i in places]

    def _deviation(self, prompt: Prompt) -> float:
        """sqrt(p (1 - p)) of the posterior mean p."""
        alpha, beta = self._posteriors.of(prompt.index)
        return float(np.sqrt(alpha * beta)) / (alpha + beta)

    def _temperature(self, prompt: Prompt) -> float:
        if self._options.temperature is not None:
            return self._options.temperature
        alpha, _ = self._posteriors.of(prompt.index)
        return 100 * alpha

    def learn(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._posteriors.update(group.request.prompt.index, outcome_of(group, self._options.criterion))

    def state_dict(self) -> dict:
        return super().state_dict() | {"posteriors": self._posteriors.state_dict()}

    def load_state_dict(self, state: Mapping) -> None:
        super().load_state_dict(state)
        self._posteriors.load_state_dict(state["posteriors"])


def in_proportion(deviations: np.ndarray, n: int, n_min: int) -> np.ndarray:
    """[k] counts of at least n_min that sum to k n, in proportion to the deviations [k] up to rounding.

    They minimise the sum of deviation^2 / count; among real numbers, exactly proportional counts do.
    """
    spare = len(deviations) * (n - n_min)
    costs = deviations[:, None] ** 2 / np.arange(n_min, n_min + spare + 1)
    return n_min + least_sum(costs, spare)
