"""Log-probabilities of given completions, without ever holding logits of all tokens at once."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from pods_jax.models.decoder import Decoder, Params, head_logits

LOGITS_BUDGET = 2**24
"""Logits that exist at a time on each device, unless a chunk size is given: 64 MiB in float32."""

VOCABULARY = ("tensor", "fsdp", "data")
"""The mesh axes that split logits; in this order, what `tensor` splits already stays where it is."""


class Scores(NamedTuple):
    """Per-token log-probabilities of the given tokens, and entropies of their distributions, in nats."""

    logprobs: Array
    entropies: Array


def project(
    hidden: Float[Array, "B N D"],
    params: Params,
    targets: Int[Array, "B N"],
    temperature: float,
    chunk_size: int | None,
    mesh: Mesh | None = None,
    entropy_gradient: bool = False,
) -> Scores:
    """Log-softmax of the head's logits at the targets, minus logsumexp, `chunk_size` tokens at a time.

    Each chunk's logits are recomputed in the backward pass, so that memory is chunk_size V, not B N V. A chunk has
    equally many tokens of every row (at least one), so that devices which hold different rows work on it together.

    On a mesh the vocabulary is split over all its devices, if they divide it (Megatron-LM, arXiv 1909.08053, section
    3): they exchange a chunk's hidden states, where else each chunk would gather the head and reduce its gradient.
    """
    placed = functools.partial(_placed, mesh if mesh is not None and len(params["embed"]) % mesh.size == 0 else None)
    name, axis = ("lm_head", 1) if "lm_head" in params else ("embed", 0)
    head = params[name]
    for axes in (VOCABULARY[:2], VOCABULARY):  # two steps, the second of which moves nothing
        head = placed(head, *(None,) * axis, axes)

    @jax.checkpoint
    def score(h, target):
        logits = placed(head_logits({name: head}, placed(h.reshape(-1, h.shape[-1]))) / temperature, None, VOCABULARY)
        normaliser = jax.nn.logsumexp(logits, -1)
        entropy = normaliser - (jax.nn.softmax(logits) * logits).sum(-1)
        chosen = jax.lax.broadcasted_iota(target.dtype, logits.shape, 1) == target.reshape(-1, 1)
        logprobs = jnp.where(chosen, logits, 0.0).sum(-1) - normaliser  # a gather would want all logits on a device
        entropy = entropy if entropy_gradient else jax.lax.stop_gradient(entropy)
        return Scores(logprobs.reshape(target.shape), entropy.reshape(target.shape))

    B, N = targets.shape
    budget = LOGITS_BUDGET * (1 if mesh is None else mesh.size)
    width = max(1, (chunk_size or budget // len(params["embed"])) // B)
    if width >= N:
        return score(hidden, targets)

    def cut(x):
        """[B, N, ...] -> [chunks, B, width, ...]"""
        x = jnp.pad(x, ((0, 0), (0, -N % width), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(B, -1, width, *x.shape[2:]).swapaxes(0, 1)

    scores = jax.lax.map(lambda xs: score(*xs), (cut(hidden), cut(targets)))
    return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(B, -1)[:, :N], scores)


def _placed(mesh: Mesh | None, x: Array, *axes: str | tuple[str, ...] | None) -> Array:
    """x with its axes split over those of the mesh; what is not named is whole on each device."""
    return x if mesh is None else jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*axes)))


def group_logprobs(
    model: Decoder,
    params: Params,
    prompts: Int[Array, "P S"],
    prompt_lengths: Int[Array, " P"],
    completions: Int[Array, "P n T"],
    *,
    temperature: float = 1.0,
    chunk_size: int | None = None,
    entropy_gradient: bool = False,
) -> Scores:
    """Scores [P, n, T] of completions that share their group's prompt, each prompt computed once.

    entropy_gradient: False: entropies are constants to a gradient.
    """
    hidden = model.apply({"params": params}, prompts, prompt_lengths, completions, method="group_hidden")
    P, _, _, D = hidden.shape
    mesh = model.activations and model.activations.mesh
    targets = completions.reshape(P, -1)
    scores = project(hidden.reshape(P, -1, D), params, targets, temperature, chunk_size, mesh, entropy_gradient)
    return jax.tree.map(lambda x: x.reshape(completions.shape), scores)


def token_logprobs(
    model: Decoder,
    params: Params,
    tokens: Int[Array, "R U"],
    prompt_lengths: Int[Array, " R"],
    completion_lengths: Int[Array, " R"],
    *,
    temperature: float = 1.0,
    chunk_size: int | None = None,
    max_completion_length: int | None = None,
) -> Float[Array, "R T"]:
    """Teacher-forced log-probabilities of each row's completion tokens; 0 beyond its length.

    Args:
      tokens: rows of prompt, then completion, then padding.
      prompt_lengths, completion_lengths: token counts; row r's completion starts at prompt_lengths[r].
      temperature: divides the logits, as in sampling.
      chunk_size: tokens projected onto the vocabulary at a time (None: 64 MiB of logits).
      max_completion_length: T (default: U - 1, the most a row of U tokens can hold after a one-token prompt).
    """
    T = tokens.shape[1] - 1 if max_completion_length is None else max_completion_length
    hidden = model.apply({"params": params}, tokens, method="hidden")
    offsets = jnp.arange(T)
    at = jnp.minimum(prompt_lengths[:, None] + offsets, tokens.shape[1] - 1)
    targets = jnp.take_along_axis(tokens, at, 1)
    predictors = jnp.take_along_axis(hidden, jnp.maximum(at - 1, 0)[..., None], 1)
    scores = project(predictors, params, targets, temperature, chunk_size)
    return jnp.where(offsets < completion_lengths[:, None], scores.logprobs, 0.0)
