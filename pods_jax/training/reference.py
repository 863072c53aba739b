"""Log-probabilities of rollouts under the reference and the policy, and the KL as a penalty in the reward."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from pods_jax.config.schema import Config
from pods_jax.groups import Group
from pods_jax.learner.batch import Kept, block_size, blocks_of, make_batch
from pods_jax.learner.logprobs import group_logprobs
from pods_jax.learner.update import cut, uncut
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.parallel import batch_sharding, num_shards, place, to_host


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Log-probabilities [P, n, T] of completions, as many at a time as in the update's micro-batches.

    Attributes:
      model: lays its activations out as batches are.
      micro_batch_size: rollouts, over all devices; None: all.
    """

    model: Decoder
    micro_batch_size: int | None
    temperature: float
    chunk_size: int | None

    def __call__(self, params: Params, prompts: Any, prompt_lengths: Any, completions: Any) -> jax.Array:
        """Log-probabilities; prompts: [P, S]; prompt_lengths: [P]; completions: [P, n, T]; all on the devices."""
        return _score(self.model, params, prompts, prompt_lengths, completions, **self._options(completions.shape))

    def entropies(self, params: Params, prompts: Any, prompt_lengths: Any, completions: Any) -> jax.Array:
        """Entropies [P, n, T] of the tokens' distributions, in nats; arguments as in a call."""
        options = self._options(completions.shape) | {"field": "entropies"}
        return _score(self.model, params, prompts, prompt_lengths, completions, **options)

    def lower(
        self, params: Any, prompts: Any, prompt_lengths: Any, completions: Any, field: str = "logprobs"
    ) -> jax.stages.Lowered:
        """The program of a call, or of `entropies`, from shapes in place of arrays."""
        options = self._options(completions.shape) | {"field": field}
        return _score.lower(self.model, params, prompts, prompt_lengths, completions, **options)

    def _options(self, shape: tuple[int, ...]) -> dict[str, Any]:
        count = shape[0] * shape[1] // self.micro_batch_size if self.micro_batch_size else 1
        return {"count": count, "temperature": self.temperature, "chunk_size": self.chunk_size}


def make_scorer(config: Config, model: Decoder, mesh: jax.sharding.Mesh) -> Scorer:
    """The scorer of a config's rollouts on a mesh."""
    micro = config.optimizer.micro_batch_size_per_device
    return Scorer(
        model.clone(activations=batch_sharding(mesh)),
        micro and micro * num_shards(mesh),
        config.rollout.temperature,
        config.optimizer.logprob_chunk_size,
    )


@functools.partial(jax.jit, static_argnames=("model", "count", "temperature", "chunk_size", "field"))
def _score(
    model: Decoder, params: Params, prompts: Int[Array, "P S"], prompt_lengths: Int[Array, " P"],
    completions: Int[Array, "P n T"], *, count: int, temperature: float, chunk_size: int | None,
    field: str = "logprobs",
) -> Float[Array, "P n T"]:  # fmt: skip
    """A field of the completions' `Scores`, one of `count` micro-batches after the other."""

    def score(rows: tuple[Array, Array, Array]) -> Array:
        return getattr(group_logprobs(model, params, *rows, temperature=temperature, chunk_size=chunk_size), field)

    return uncut(jax.lax.map(score, tuple(cut(x, count) for x in (prompts, prompt_lengths, completions))))


@functools.partial(jax.jit, donate_argnums=0)
def mixed(reference: Params, policy: Params, alpha: jax.Array) -> Params:
    """alpha x policy + (1 - alpha) x reference, in the reference's memory."""
    return jax.tree.map(lambda r, p: ((1 - alpha) * r + alpha * p).astype(r.dtype), reference, policy)


def penalised(
    config: Config, groups: Sequence[Group], scorer: Scorer, ref_params: Params, mesh: jax.sharding.Mesh
) -> list[Group]:
    """The groups with beta times the KL to the reference taken off their rewards; it joins their parts as "kl"."""
    beta = np.float32(config.objective.reward_beta)
    kls = _summed_k1(config, groups, scorer, ref_params, mesh)
    return [
        dataclasses.replace(group, rewards=group.rewards - beta * kl, parts={**group.parts, "kl": kl})
        for group, kl in zip(groups, kls, strict=True)
    ]


def _summed_k1(
    config: Config, groups: Sequence[Group], scorer: Scorer, ref_params: Params, mesh: jax.sharding.Mesh
) -> list[np.ndarray]:
    """The KL of each of a group's rollouts, [n] for each group; they are scored in the blocks of an update.

    It is k1, log(policy / reference), summed over a completion's tokens (Ziegler et al. 2019, arXiv 1909.08593;
    REINFORCE++, Hu 2025, arXiv 2501.03262, with discount 1); the policy's part is the sampler's, over all tokens.
    """
    everything = [Kept(g, np.arange(len(g.lengths)), np.zeros(len(g.lengths), np.float32)) for g in groups]
    batch = make_batch(config, everything, num_shards(mesh))
    rows = place((batch.prompts, batch.prompt_lengths, batch.completions), batch_sharding(mesh))
    references = to_host(scorer(ref_params, *rows))
    kls = iter(np.where(batch.own_mask, batch.sampler_logprobs - references, 0.0).sum(-1))
    summed = [np.zeros(len(g.lengths), np.float32) for g in groups]
    for kept, out in zip(everything, summed, strict=True):
        for block in blocks_of(kept, block_size(config)):
            out[block.rows] = next(kls)[: len(block.rows)]
    return summed
