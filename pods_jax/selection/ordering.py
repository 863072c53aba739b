"""Sorting a group, with ties in random order.

XLA sorts one array of integers on a CPU about ten times as fast as several arrays by a comparison of floats. So the
order comes from two sorts of 32-bit keys that carry a place in the group in their low bits: a radix sort.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32


def descending(scores: Float[Array, " n"], key: Key[Array, ""], valid: Bool[Array, " n"]) -> Int[Array, " n"]:
    """Indices by falling score (compared as float32), ties in random order, invalid entries last; n <= 65,536.

    Ties are ordered by 32 - 2 ceil(log2 n) random bits and, where these agree, by the index under a random
    exclusive-or, so that of any two tied entries either comes first equally often.
    """
    n = len(scores)
    bits = max((n - 1).bit_length(), 1)
    if bits > 16:
        raise ValueError(f"a group may have 65,536 members, got {n}")
    noise = jax.random.bits(key, (n + 1,), jnp.uint32)
    places, mask = jnp.arange(n, dtype=jnp.uint32), jnp.uint32(2**bits - 1)
    falling = jnp.where(valid, ~_ordered(scores), jnp.uint32(2**32 - 1))
    shuffle = noise[n] & mask
    low = falling << (32 - bits) | (noise[:n] >> 2 * bits) << bits | places ^ shuffle
    by_low = (jnp.sort(low) & mask) ^ shuffle
    high = falling[by_low] >> bits << bits | places
    return by_low[jnp.sort(high) & mask].astype(jnp.int32)


def _ordered(x: Float[Array, " n"]) -> UInt32[Array, " n"]:
    """Integers in the order of the floats: sign and magnitude become an offset binary number; -0 equals 0."""
    x = x.astype(jnp.float32)
    raw = jax.lax.bitcast_convert_type(jnp.where(x == 0, 0.0, x), jnp.uint32)
    return jnp.where(raw >> 31, ~raw, raw | jnp.uint32(2**31))


def ends(
    order: Int[Array, " n"], num_high: Int[Array, ""], num_kept: int, num_valid: Int[Array, ""]
) -> Int[Array, " m"]:
    """The first num_high and the last num_kept - num_high of the first num_valid (at least num_kept) of an order."""
    slot = jnp.arange(num_kept)
    return order[jnp.where(slot < num_high, slot, num_valid - num_kept + slot)]
