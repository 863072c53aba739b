"""Attention of one new token a rollout, over keys and values in the layouts that XLA multiplies without a copy.

R = B g rollouts in blocks of g that share a prompt. The keys of R rollouts are [R, K, h, U], those of B prompts
[B, K, h, S]; values are [R, K, U, h] and [B, K, S, h]: each score and each output is a plain batched matrix product.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pods_jax.models import decoder


class Cache(NamedTuple):
    """Keys [rows, K, h, U] and values [rows, K, U, h] of one layer; a row is a rollout or a prompt."""

    k: Array
    v: Array


def prompt_cache(kv: decoder.KV) -> Cache:
    """The prompts' keys and values [Q, 1, S, K, h] of one layer, as the decode loop reads them."""
    return Cache(kv.k[:, 0].transpose(0, 2, 3, 1), kv.v[:, 0].transpose(0, 2, 1, 3))


def empty_cache(rows: int, capacity: int, prompts: Cache) -> Cache:
    """No tokens yet, of at most `capacity`, for the layer that the prompts' cache is of."""
    K, h = prompts.k.shape[1:3]
    return Cache(jnp.zeros((rows, K, h, capacity), prompts.k.dtype), jnp.zeros((rows, K, capacity, h), prompts.v.dtype))


def extend(cache: Cache, kv: decoder.KV, t: Int[Array, ""]) -> Cache:
    """Writes token t's keys and values [B, g, 1, K, h]."""
    k, v = (x.reshape(-1, *x.shape[3:]) for x in kv)
    return Cache(
        jax.lax.dynamic_update_slice_in_dim(cache.k, k[..., None], t, 3),
        jax.lax.dynamic_update_slice_in_dim(cache.v, v[:, :, None], t, 2),
    )


def grown(cache: Cache, capacity: int) -> Cache:
    """The same tokens, with room for `capacity`."""
    more = (0, capacity - cache.k.shape[3])
    return Cache(jnp.pad(cache.k, ((0, 0),) * 3 + (more,)), jnp.pad(cache.v, ((0, 0),) * 2 + (more, (0, 0))))


def attend(
    q: Float[Array, "B g 1 H h"], own: Cache, t: Int[Array, ""], prompts: Cache, valid: Bool[Array, "B S"]
) -> Float[Array, "B g 1 H h"]:
    """Each rollout's last token attends to its block's prompt, where valid, and to its own tokens 0 to t.

    Both parts have their own scores and one common maximum and denominator, so nothing is concatenated.
    """
    B, g, _, H, h = q.shape
    K, U = own.k.shape[1], own.k.shape[3]
    G = H // K

    def by_block(x):  # [R, K, G, ...] -> [B, K, g G, ...], rows of one matrix for a block's prompt
        return x.reshape(B, g, K, G, -1).swapaxes(1, 2).reshape(B, K, g * G, -1)

    def by_row(x):
        return x.reshape(B, K, g, G, -1).swapaxes(1, 2).reshape(B * g, K, G, -1)

    q = q.reshape(B * g, K, G, h) * h**-0.5
    to_own = jnp.einsum("rkgh,rkhu->rkgu", q, own.k).astype(jnp.float32)
    to_own = jnp.where(jnp.arange(U) <= t, to_own, -jnp.inf)
    to_prompt = jnp.einsum("bkmh,bkhs->bkms", by_block(q), prompts.k).astype(jnp.float32)
    to_prompt = jnp.where(valid[:, None, None], to_prompt, -jnp.inf)
    top = jnp.maximum(to_own.max(-1, keepdims=True), by_row(to_prompt.max(-1, keepdims=True)))
    to_own, to_prompt = jnp.exp(to_own - top), jnp.exp(to_prompt - by_block(top))
    total = to_own.sum(-1, keepdims=True) + by_row(to_prompt.sum(-1, keepdims=True))
    out = jnp.einsum("rkgu,rkuh->rkgh", to_own.astype(q.dtype), own.v)
    out += by_row(jnp.einsum("bkms,bksh->bkmh", to_prompt.astype(q.dtype), prompts.v))
    return (out / total).astype(q.dtype).reshape(B, g, 1, H, h)
