"""Log-probabilities of given completions, without ever holding logits of all tokens at once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pods_jax.models.decoder import Decoder, Params, head_logits

LOGITS_BUDGET = 2**24
"""Logits that exist at a time, unless a chunk size is given: 64 MiB in float32."""


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
) -> Scores:
    """Log-softmax of the head's logits at the targets: gather minus logsumexp, `chunk_size` tokens at a time.

    Each chunk's logits are recomputed in the backward pass, so that memory is chunk_size V, not B N V. A chunk has
    equally many tokens of every row (at least one), so that devices which hold different rows work on it together.
    """

    @jax.checkpoint
    def score(h, target):
        logits = head_logits(params, h.reshape(-1, h.shape[-1])) / temperature
        normaliser = jax.nn.logsumexp(logits, -1)
        entropy = normaliser - (jax.nn.softmax(logits) * logits).sum(-1)
        logprobs = jnp.take_along_axis(logits, target.reshape(-1, 1), -1)[:, 0] - normaliser
        return Scores(logprobs.reshape(target.shape), jax.lax.stop_gradient(entropy).reshape(target.shape))

    B, N = targets.shape
    width = max(1, (chunk_size or LOGITS_BUDGET // len(params["embed"])) // B)
    if width >= N:
        return score(hidden, targets)

    def cut(x):
        """[B, N, ...] -> [chunks, B, width, ...]"""
        x = jnp.pad(x, ((0, 0), (0, -N % width), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(B, -1, width, *x.shape[2:]).swapaxes(0, 1)

    scores = jax.lax.map(lambda xs: score(*xs), (cut(hidden), cut(targets)))
    return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(B, -1)[:, :N], scores)


def group_logprobs(
    model: Decoder,
    params: Params,
    prompts: Int[Array, "P S"],
    prompt_lengths: Int[Array, " P"],
    completions: Int[Array, "P n T"],
    *,
    temperature: float = 1.0,
    chunk_size: int | None = None,
) -> Scores:
    """Scores [P, n, T] of completions that share their group's prompt, each prompt computed once."""
    hidden = model.apply({"params": params}, prompts, prompt_lengths, completions, method="group_hidden")
    P, _, _, D = hidden.shape
    scores = project(hidden.reshape(P, -1, D), params, completions.reshape(P, -1), temperature, chunk_size)
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
