"""The sampler: completions of prompts, as host arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Key

from pods_jax.models.decoder import Decoder, Params
from pods_jax.parallel import place, to_host
from pods_jax.rollout.blocks import Layout, arrange, block_size
from pods_jax.rollout.buckets import bucket, pad_prompts
from pods_jax.rollout.decode import Decoded, Drawing, decode


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
) -> Completions:
    """Completions of every prompt.

    A rollout depends on (key, prompt id, sample index) and the parameters, not on the other rows, padding or devices;
    shapes are bucketed, so that few programs are compiled.

    Args:
      prompts: token ids, no padding; at least one token each.
      num_generations: rollouts of each prompt, or of all alike; n is the largest.
      max_new_tokens: T.
      temperature: 0 takes the most probable token.
      top_k, top_p: 0 and 1.0 switch them off. `logprobs` stay those of the full distribution.
      eos_ids: tokens that end a completion.
      prompt_ids: names of the prompts for the random keys (default 0, 1, ...).
      first_samples: each prompt's first sample index (default 0); its rollouts have this one and the following.
      sharding: where prompts are placed (default: the first device); see `pods_jax.parallel.batch_sharding`.
    """
    P = len(prompts)
    counts = [num_generations] * P if isinstance(num_generations, int) else list(num_generations)
    layout = arrange(counts, block_size(counts), 1 if sharding is None else _parts(sharding))
    padded = pad_prompts([prompts[p] if p >= 0 else () for p in layout.prompts], pad_id)
    tokens, lengths = (x[: len(layout.prompts)] for x in padded)
    ids = np.arange(P) if prompt_ids is None else np.asarray(prompt_ids)
    firsts = np.zeros(P, int) if first_samples is None else np.asarray(first_samples)
    samples = np.where(layout.rows < 0, -1, firsts[layout.groups][:, None] + layout.rows).astype(np.int32)
    arrays = (tokens, lengths, ids[layout.prompts].astype(np.uint32), layout.owners, samples)
    decoded = decode(
        model,
        params,
        *place(arrays, sharding),
        key,
        jnp.float32(temperature or 1.0),
        max_new_tokens=max_new_tokens,
        drawing=Drawing(temperature == 0, top_k, top_p, tuple(eos_ids), pad_id),
    )
    return _completions(to_host(decoded), layout, (P, max(counts)), pad_id)


def lower(
    model: Decoder,
    params: Params,
    *,
    num_generations: Sequence[int],
    prompt_length: int,
    max_new_tokens: int,
    drawing: Drawing,
    sharding: jax.sharding.NamedSharding,
) -> jax.stages.Lowered:
    """The program that `generate` runs for prompts of at most `prompt_length` tokens, to be compiled ahead of time.

    params: shapes with shardings take the place of arrays. Of `drawing.eos_ids`, only their number matters.
    """
    layout = arrange(num_generations, block_size(num_generations), _parts(sharding))
    Q, whole = len(layout.prompts), jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())

    def shape(dims: tuple[int, ...], dtype: str, where: jax.sharding.NamedSharding = sharding):
        return jax.ShapeDtypeStruct(dims, dtype, sharding=where)

    return decode.lower(
        model,
        params,
        shape((Q, bucket(prompt_length)), "int32"),
        shape((Q,), "int32"),
        shape((Q,), "uint32"),
        None if layout.owners is None else shape(layout.owners.shape, "int32"),
        shape(layout.rows.shape, "int32"),
        jax.eval_shape(lambda: jax.random.key(0)),
        shape((), "float32", whole),
        max_new_tokens=max_new_tokens,
        drawing=drawing,
    )


def _completions(d: Decoded, layout: Layout, shape: tuple[int, int], pad_id: int) -> Completions:
    return Completions(
        tokens=layout.grouped(d.tokens, shape, pad_id),
        logprobs=layout.grouped(d.logprobs, shape, 0.0),
        lengths=layout.grouped(d.lengths, shape, 0),
        truncated=layout.grouped(~d.done, shape, False),
    )


def _parts(sharding: jax.sharding.NamedSharding) -> int:
    """Into how many parts the leading axis is split."""
    axes = sharding.spec[0] if sharding.spec else ()
    return int(np.prod([sharding.mesh.shape[a] for a in (axes if isinstance(axes, tuple) else (axes,))]))
