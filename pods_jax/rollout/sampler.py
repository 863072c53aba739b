"""The sampler: completions of prompts, as host arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Key

from pods_jax.models.decoder import Decoder, Params
from pods_jax.rollout.blocks import Layout, block_size, passes
from pods_jax.rollout.buckets import bucket
from pods_jax.rollout.chunks import Job, decoded_chunks, parts
from pods_jax.rollout.decode import Decoded, Drawing
from pods_jax.rollout.memory import block_tokens, kv_bytes, rows_that_fit
from pods_jax.rollout.weights import unstacked

BLOCK_LIMIT = 4
"""Rollouts in a block where decoding goes in chunks: so few that those which are done leave whole blocks empty."""


class Completions(NamedTuple):
    """What the sampler returns, for P prompts with at most n rollouts of at most T tokens; on the host.

    Attributes:
      tokens: [P, n, T] token ids; the first `lengths` of a row count, the rest is padding.
      logprobs: [P, n, T] log-probabilities of the tokens at the sampling temperature, over the full vocabulary.
      lengths: [P, n] in 0..T, the end-of-sequence token counted; 0 in rows past a prompt's own number of rollouts.
      truncated: [P, n] whether the row reached T without an end-of-sequence token.
    """

    tokens: Int[np.ndarray, "P n T"]
    logprobs: Float[np.ndarray, "P n T"]
    lengths: Int[np.ndarray, "P n"]
    truncated: Bool[np.ndarray, "P n"]


def generate(
    model: Decoder,
    params: Params,
    prompts: Sequence[Sequence[int]],
    *,
    num_generations: int | Sequence[int],
    max_new_tokens: int,
    key: Key[jax.Array, ""],
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    eos_ids: Sequence[int] = (),
    pad_id: int = 0,
    prompt_ids: Sequence[int] | None = None,
    first_samples: Sequence[int] | None = None,
    sharding: jax.sharding.NamedSharding | None = None,
    chunk_size: int = 64,
    max_cache_bytes_per_device: int | None = None,
) -> Completions:
    """Completions of every prompt.

    A rollout depends on (key, prompt id, sample index) and the parameters, not on the other rows, padding, devices,
    chunks or passes; shapes are bucketed, so that few programs are compiled.

    Args:
      params: stacked or unstacked (`pods_jax.rollout.weights`, for which nothing is left to do here).
      prompts: token ids, no padding; at least one token each.
      num_generations: rollouts of each prompt, or of all alike; n is the largest.
      max_new_tokens: T.
      temperature: 0 takes the most probable token.
      top_k, top_p: 0 and 1.0 switch them off. `logprobs` stay those of the full distribution.
      eos_ids: tokens that end a completion.
      prompt_ids: names of the prompts for the random keys (default 0, 1, ...).
      first_samples: each prompt's first sample index (default 0); its rollouts have this one and the following.
      sharding: where prompts are placed (default: the first device); see `pods_jax.parallel.batch_sharding`.
      chunk_size: tokens after which finished rollouts are dropped and the cache grows; from T on, one program does all.
      max_cache_bytes_per_device: more rollouts than fit are decoded in several passes (None: in one).

    Raises:
      UserError: the budget does not hold one rollout.
    """
    P, T = len(prompts), max_new_tokens
    counts = [num_generations] * P if isinstance(num_generations, int) else list(num_generations)
    devices, mesh = (1, None) if sharding is None else (parts(sharding), sharding.mesh)
    token_bytes, longest = kv_bytes(model.config, params["embed"].dtype, mesh), max(map(len, prompts))
    layouts = planned_passes(counts, token_bytes, longest, T, devices, chunk_size, max_cache_bytes_per_device)
    job = Job(
        config=model.config,
        weights=unstacked(params),
        prompts=prompts,
        prompt_ids=np.arange(P) if prompt_ids is None else np.asarray(prompt_ids),
        firsts=np.zeros(P, int) if first_samples is None else np.asarray(first_samples),
        key=key,
        temperature=np.float32(temperature or 1.0),
        drawing=Drawing(temperature == 0, top_k, top_p, tuple(eos_ids), pad_id),
        max_new_tokens=T,
        chunk_size=min(chunk_size, T),
        sharding=sharding,
    )
    completions = _nothing(counts, T, pad_id)
    for layout in layouts:
        for chunk in decoded_chunks(job, layout):
            _collect(completions, *chunk)
    return completions


def planned_passes(
    counts: Sequence[int], token_bytes: int, prompt_length: int, max_new_tokens: int, devices: int, chunk_size: int,
    max_cache_bytes_per_device: int | None,
) -> list[Layout]:  # fmt: skip
    """Where `generate` decodes each of so many rollouts of every prompt, the longest of `prompt_length` tokens.

    token_bytes: see `kv_bytes`. Raises a UserError if the budget does not hold one rollout.
    """
    T, S = max_new_tokens, bucket(prompt_length)
    size, most = block_size(counts, BLOCK_LIMIT if chunk_size < T else max(counts)), None
    if max_cache_bytes_per_device is not None:
        size = min(size, rows_that_fit(max_cache_bytes_per_device, token_bytes, S, T))
        most = max_cache_bytes_per_device // (token_bytes * block_tokens(size, S, T))
    return passes(counts, size, devices, most)


def _nothing(counts: Sequence[int], max_new_tokens: int, pad_id: int) -> Completions:
    shape = (len(counts), max(counts))
    return Completions(
        tokens=np.full((*shape, max_new_tokens), pad_id, np.int32),
        logprobs=np.zeros((*shape, max_new_tokens), np.float32),
        lengths=np.zeros(shape, np.int32),
        truncated=np.zeros(shape, bool),
    )


def _collect(completions: Completions, layout: Layout, start: int, chunk: Decoded) -> None:
    """Writes a chunk of tokens, the first of which has the number `start`, to its rollouts."""
    T = completions.tokens.shape[-1]
    for out, values in zip(completions[:2], chunk[:2], strict=True):
        layout.put(values[..., : T - start], out[..., start : start + values.shape[-1]])
    layout.put(start + chunk.lengths, completions.lengths)
    layout.put(~chunk.done, completions.truncated)
