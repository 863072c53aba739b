"""MoPPS (Qu et al. 2025, arXiv 2507.04632): rollouts for candidates whose success rate is predicted near a target."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pods_jax.allocation.base import Choosing, Stream, generator, register
from pods_jax.allocation.options import ChoiceOptions, no_share, options_of, unknown_choice
from pods_jax.allocation.outcomes import outcome_of
from pods_jax.allocation.predictors import BetaPosteriors
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Prompt, Request


@dataclasses.dataclass(frozen=True)
class MoppsOptions(ChoiceOptions):
    """Defaults are those of the authors' code and scripts: 16 x rollout.num_prompts candidates. The default of `decay`
    is unverified.

    Attributes:
      decay: weight of an example's earlier rollouts when new ones are added; 1 forgets nothing.
      choice: "nearest" takes the candidates whose drawn rate is nearest to `target`; "threshold" takes random ones
        between `lower` and `upper`, and where they are too few, those nearest to that interval.
    """

    decay: float = 0.5
    choice: str = "nearest"
    target: float = 0.5
    lower: float = 0.3
    upper: float = 0.7

    def violations(self, config: Config) -> Iterator[str]:
        yield from super().violations(config)
        yield from no_share("decay", self.decay)
        yield from no_share("target", self.target)
        yield from unknown_choice("choice", self.choice, tuple(CHOICES))
        if not 0 <= self.lower <= self.upper <= 1:
            yield "allocation.options: 0 <= lower <= upper <= 1 must hold"


def nearest(rates: np.ndarray, rng: np.random.Generator, o: MoppsOptions) -> np.ndarray:
    """The places of the rates, ordered by distance to the target; among equal ones, the first drawn first."""
    return np.argsort(np.abs(rates - o.target), kind="stable")


def threshold(rates: np.ndarray, rng: np.random.Generator, o: MoppsOptions) -> np.ndarray:
    """The places of the rates, ordered by distance to the interval lower..upper; rates within it in random order."""
    distances = np.maximum(np.maximum(o.lower - rates, rates - o.upper), 0)
    return np.lexsort((rng.permutation(len(rates)), distances))


CHOICES: Mapping[str, Callable[[np.ndarray, np.random.Generator, MoppsOptions], np.ndarray]] = {
    "nearest": nearest,
    "threshold": threshold,
}
"""Functions that order the candidates by the rates drawn for them; the first P get rollouts."""


@register("mopps")
class Mopps(Choosing):
    """P of the candidates get n rollouts each; the others are passed over until the stream gives them again.

    Each example has a Beta posterior over its success rate. A candidate's rate is drawn from it (Thompson sampling), so
    that examples with few rollouts are tried as well.
    """

    Options = MoppsOptions

    def __init__(self, config: Config):
        super().__init__(config)
        self._options = options_of(MoppsOptions, config)
        self._seed = config.seed
        self._posteriors = BetaPosteriors(self._options.decay)

    def requests(self, stream: Stream) -> list[Request]:
        o = self._options
        drawn = self.draw(stream, 16 * self.num_prompts if o.candidates is None else o.candidates)
        rates = np.array([self._draw(prompt) for prompt in drawn])
        order = CHOICES[o.choice](rates, generator(self._seed, "mopps order", drawn[0].uid), o)
        return [Request(drawn[i], self.n) for i in order[: self.num_prompts]]

    def _draw(self, prompt: Prompt) -> float:
        alpha, beta = self._posteriors.of(prompt.index)
        return generator(self._seed, "mopps", prompt.uid).beta(alpha, beta)

    def learn(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._posteriors.update(group.request.prompt.index, outcome_of(group, self._options.criterion))

    def state_dict(self) -> dict:
        return super().state_dict() | {"posteriors": self._posteriors.state_dict()}

    def load_state_dict(self, state: Mapping) -> None:
        super().load_state_dict(state)
        self._posteriors.load_state_dict(state["posteriors"])
