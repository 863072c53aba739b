"""VIP (Nguyen et al. 2026, arXiv 2602.01601): deals a step's rollouts so that the gradient varies least."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pods_jax.allocation.base import OneRound, Stream, register
from pods_jax.allocation.options import OutcomeOptions, options_of, too_small, unknown_choice
from pods_jax.allocation.outcomes import success_rates
from pods_jax.allocation.predictors import GaussianProcess, embed, sigmoid
from pods_jax.config.schema import Config
from pods_jax.groups import Group, Request

CLIP = 1e-6  # success rates are held to [CLIP, 1 - CLIP], as in the authors' code


def rloo_variance(n: np.ndarray) -> np.ndarray:
    """The variance of a gradient from n rollouts with a leave-one-out baseline, as a multiple of p (1 - p)."""
    return 1 / (n - 1)


def dr_grpo_variance(n: np.ndarray) -> np.ndarray:
    """The same with the mean reward as the baseline: it falls ever slower only from n = 3 on."""
    return (n - 1) / n**2


VARIANCES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"rloo": rloo_variance, "dr_grpo": dr_grpo_variance}


@dataclasses.dataclass(frozen=True)
class VipOptions(OutcomeOptions):
    """Defaults are those of the authors' code, except for the embedding, which is ours.

    Attributes:
      variance: the estimator whose variance is minimised: "rloo" or "dr_grpo".
      n_min, n_max: smallest and largest number of rollouts of a prompt; n_max None: 4 x rollout.num_generations.
      prior_mean: logit of the success rate that is predicted far from all prompts seen so far.
      scale: the kernel's length scale; noise: the number added to its diagonal.
      embedding_size: coordinates of a prompt's embedding (see `pods_jax.allocation.predictors.embed`).
    """

    variance: str = "rloo"
    n_min: int = 4
    n_max: int | None = None
    prior_mean: float = -1.0
    scale: float = 0.4
    noise: float = 1e-4
    embedding_size: int = 64

    def most(self, n: int) -> int:
        """Largest number of rollouts of a prompt, where the average is n."""
        return 4 * n if self.n_max is None else self.n_max

    def violations(self, config: Config) -> Iterator[str]:
        n = config.rollout.num_generations
        yield from super().violations(config)
        yield from unknown_choice("variance", self.variance, tuple(VARIANCES))
        yield from too_small("n_min", self.n_min, 3 if self.variance == "dr_grpo" else 2)
        if not self.n_min <= n <= self.most(n):
            yield (
                f"rollout.num_generations = {n} must lie between allocation.options.n_min = {self.n_min} and n_max = "
                f"{self.most(n)}"
            )
        yield from too_small("embedding_size", self.embedding_size, 1)
        for name in ("scale", "noise"):
            if not getattr(self, name) > 0:
                yield f"allocation.options.{name} must be positive, got {getattr(self, name)}"


@register("vip")
class Vip(OneRound):
    """P new prompts a step with P x n rollouts in sum, exactly; every group is trained on.

    A Gaussian process over the prompts predicts success rates p_i, and the counts N_i minimise the sum of
    p_i (1 - p_i) x VARIANCES(N_i). The process learns from the logits of observed rates.

    Our choices: the authors embed prompts with a sentence encoder, which this code does not have. They solve a
    continuous relaxation and round it; here the counts are the optimal whole numbers. A term of the authors' code that
    favours rare successes is not in the paper, and not here.
    """

    Options = VipOptions

    def __init__(self, config: Config):
        super().__init__(config)
        self._options = options_of(VipOptions, config)
        o = self._options
        self._process = GaussianProcess(o.prior_mean, o.scale, o.noise)

    def requests(self, stream: Stream) -> list[Request]:
        o = self._options
        prompts = stream.next(self.num_prompts)
        p = sigmoid(self._process.mean(embed(prompts, o.embedding_size))).clip(CLIP, 1 - CLIP)
        left = VARIANCES[o.variance](np.arange(o.n_min, o.most(self.n) + 1))
        variances = (p * (1 - p))[:, None] * left
        counts = o.n_min + least_sum(variances, len(prompts) * (self.n - o.n_min))
        return [Request(prompt, int(count)) for prompt, count in zip(prompts, counts, strict=True)]

    def learn(self, groups: Sequence[Group]) -> None:
        seen, rates = success_rates(groups, self._options.criterion)
        if seen:
            held = rates.clip(CLIP, 1 - CLIP)
            points = embed(seen, self._options.embedding_size)
            self._process.observe([p.index for p in seen], points, np.log(held / (1 - held)))

    def state_dict(self) -> dict:
        return super().state_dict() | {"process": self._process.state_dict()}

    def load_state_dict(self, state: Mapping) -> None:
        super().load_state_dict(state)
        self._process.load_state_dict(state["process"])


def least_sum(costs: np.ndarray, budget: int) -> np.ndarray:
    """[k] counts c_i with the smallest sum of costs[i, c_i] among all counts that sum to the budget.

    costs [k, c_max + 1] fall along each row, ever slower. So the budget goes to the largest falls of all rows; among
    equal falls to the one of the smallest count, then to the one of the first row.
    """
    falls = -np.diff(costs, axis=1)
    largest = np.argsort(-falls.T.ravel(), kind="stable")[:budget]
    return np.bincount(largest % len(costs), minlength=len(costs))
