"""Log-probabilities of rollouts under the reference and the policy, and the KL as a penalty in the reward."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from pods_jax.config import Config
from pods_jax.learner.update import cut, joined
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.models.lora import adapt
from pods_jax.parallel import batch_sharding, num_shards, place, to_host
from pods_jax.records import Group
from pods_jax.rollout.scoring import group_logprobs
from pods_jax.training.batching import Kept, block_size, blocks_of, make_batch
from pods_jax.training.run import Run


@functools.partial(jax.jit, static_argnames=("model", "count", "temperature", "chunk_size"))
def _score(
    model: Decoder, params: Params, prompts: Int[Array, "P S"], prompt_lengths: Int[Array, " P"],
    completions: Int[Array, "P n T"], *, count: int, temperature: float, chunk_size: int | None,
) -> Float[Array, "P n T"]:  # fmt: skip
    """One of `count` micro-batches after the other."""

    def score(rows: tuple[Array, Array, Array]) -> Array:
        return group_logprobs(model, params, *rows, temperature=temperature, chunk_size=chunk_size).logprobs

    return joined(jax.lax.map(score, tuple(cut(x, count) for x in (prompts, prompt_lengths, completions))))


def reference_logprobs(run: Run, prompts: jax.Array, prompt_lengths: jax.Array, completions: jax.Array) -> jax.Array:
    """[P, n, T], of completions [P, n, T] of prompts [P, S]; as many at a time as in the update's micro-batches."""
    return _logprobs(run, run.ref_params, prompts, prompt_lengths, completions)


def policy_logprobs(run: Run, prompts: jax.Array, prompt_lengths: jax.Array, completions: jax.Array) -> jax.Array:
    """[P, n, T], of completions [P, n, T] of prompts [P, S], under the policy as it is trained."""
    params = run.state.params
    if run.base is not None:
        params = adapt(run.base, params, run.config.lora.scale)
    return _logprobs(run, params, prompts, prompt_lengths, completions)


def _logprobs(run: Run, params: Params, *rollouts: jax.Array) -> jax.Array:
    model = run.model.clone(activations=batch_sharding(run.mesh))
    return _score(model, params, *rollouts, **_options(run.config, run.mesh, rollouts[-1].shape))


def lower(
    config: Config, model: Decoder, mesh: jax.sharding.Mesh, params: Any, rollouts: Sequence[Any]
) -> jax.stages.Lowered:
    """The program of `reference_logprobs` for shapes in place of params and (prompts, prompt_lengths, completions)."""
    options = _options(config, mesh, rollouts[-1].shape)
    return _score.lower(model.clone(activations=batch_sharding(mesh)), params, *rollouts, **options)


def _options(config: Config, mesh: jax.sharding.Mesh, shape: tuple[int, ...]) -> dict[str, Any]:
    size = config.optimizer.micro_batch_size_per_device
    return {
        "count": shape[0] * shape[1] // (size * num_shards(mesh)) if size else 1,
        "temperature": config.rollout.temperature,
        "chunk_size": config.optimizer.logprob_chunk_size,
    }


def penalised(run: Run, groups: Sequence[Group]) -> list[Group]:
    """The groups with beta times the KL to the reference taken off their rewards; it joins their parts as "kl"."""
    beta = np.float32(run.config.objective.reward_beta)
    return [
        dataclasses.replace(g, rewards=g.rewards - beta * kl, parts={**g.parts, "kl": kl})
        for g, kl in zip(groups, _summed_k1(run, groups), strict=True)
    ]


def _summed_k1(run: Run, groups: Sequence[Group]) -> list[np.ndarray]:
    """The KL of each of a group's rollouts, [n] for each group; they are scored in the blocks of an update.

    It is k1, log(behaviour / reference), summed over a completion's tokens (Ziegler et al. 2019, arXiv 1909.08593;
    REINFORCE++, Hu 2025, arXiv 2501.03262, with discount 1).
    """
    size = block_size(run.config)
    everything = [Kept(g, np.arange(len(g.lengths)), np.zeros(len(g.lengths), np.float32)) for g in groups]
    batch = make_batch(run.config, everything, num_shards(run.mesh))
    rows = place((batch.prompts, batch.prompt_lengths, batch.completions), batch_sharding(run.mesh))
    references = to_host(reference_logprobs(run, *rows))
    own = np.arange(references.shape[-1]) < batch.lengths[..., None]
    kls = iter(np.where(own, batch.behaviour_logprobs - references, 0.0).sum(-1))
    summed = [np.zeros(len(g.lengths), np.float32) for g in groups]
    for kept, out in zip(everything, summed, strict=True):
        for block in blocks_of(kept, size):
            out[block.rows] = next(kls)[: len(block.rows)]
    return summed
