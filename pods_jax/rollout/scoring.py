"""Log-probabilities of given completions, without ever holding logits of all tokens at once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pods_jax.models.decoder import Decoder, Params, output_head


class Scores(NamedTuple):
    """Per-token log-probabilities of the given tokens, and entropies of their distributions, in nats."""

    logprobs: Array
    entropies: Array


def project(
    hidden: Float[Array, "N D"],
    head: Float[Array, "D V"],
    targets: Int[Array, " N"],
    temperature: float,
    chunk_size: int | None,
) -> Scores:
    """Log-softmax of the head's logits at the targets: gather minus logsumexp, `chunk_size` tokens at a time.

    Each chunk's logits are recomputed in the backward pass, so that memory is chunk_size V, not N V.
    """

    @jax.checkpoint
    def score(h, target):
        logits = (h @ head).astype(jnp.float32) / temperature
        normaliser = jax.nn.logsumexp(logits, -1)
        entropy = normaliser - (jax.nn.softmax(logits) * logits).sum(-1)
        return Scores(
            jnp.take_along_axis(logits, target[:, None], -1)[:, 0] - normaliser, jax.lax.stop_gradient(entropy)
        )

    size = len(targets)
    if chunk_size is None or chunk_size >= size:
        return score(hidden, targets)
    pad = -size % chunk_size
    hidden = jnp.pad(hidden, ((0, pad), (0, 0))).reshape(-1, chunk_size, hidden.shape[-1])
    targets = jnp.pad(targets, (0, pad)).reshape(-1, chunk_size)
    return jax.tree.map(lambda x: x.ravel()[:size], jax.lax.map(lambda xs: score(*xs), (hidden, targets)))


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
    flat = hidden.reshape(-1, hidden.shape[-1])
    scores = project(flat, output_head(params), completions.ravel(), temperature, chunk_size)
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
      chunk_size: tokens projected onto the vocabulary at a time (None: all).
      max_completion_length: T (default: U - 1, the most a row of U tokens can hold after a one-token prompt).
    """
    T = tokens.shape[1] - 1 if max_completion_length is None else max_completion_length
    hidden = model.apply({"params": params}, tokens, method="hidden")
    offsets = jnp.arange(T)
    at = jnp.minimum(prompt_lengths[:, None] + offsets, tokens.shape[1] - 1)
    targets = jnp.take_along_axis(tokens, at, 1)
    predictors = jnp.take_along_axis(hidden, jnp.maximum(at - 1, 0)[..., None], 1)
    flat = predictors.reshape(-1, predictors.shape[-1])
    scores = project(flat, output_head(params), targets.ravel(), temperature, chunk_size)
    return jnp.where(offsets < completion_lengths[:, None], scores.logprobs.reshape(at.shape), 0.0)
