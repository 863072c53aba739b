"""Sorting a group, with ties in random order.

An entry's key is a pair of 32-bit integers: its score, and random bits above its place in the group. On a CPU, where
XLA's sort of pairs is slow, a sorting network takes its place: its steps are minima and maxima of whole arrays, in
which many groups lie side by side.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from pods_jax.buckets import ceil_div

_LAST = 2**32 - 1
_BLOCK = 128  # groups that lie side by side: as many as a core's cache holds


def descending(scores: Float[Array, " n"], key: Key[Array, ""], valid: Bool[Array, " n"]) -> Int[Array, " n"]:
    """Indices by falling score (compared as float32), ties in random order, invalid entries last.

    Ties are ordered by 32 - ceil(log2 n) random bits and, where these agree, by the index under a random exclusive-or,
    so that of any two tied entries either comes first equally often.
    """
    n = len(scores)
    mask = jnp.uint32(2 ** (n - 1).bit_length() - 1)
    noise = jax.random.bits(key, (n + 1,), jnp.uint32)
    shuffle = noise[n] & mask
    falling = jnp.where(valid, ~_ordered(scores), jnp.uint32(_LAST))
    ties = noise[:n] & ~mask | jnp.arange(n, dtype=jnp.uint32) ^ shuffle
    return ((_by_pair(falling, ties) & mask) ^ shuffle).astype(jnp.int32)


@jax.custom_batching.custom_vmap
def _by_pair(first: UInt32[Array, "*P n"], second: UInt32[Array, "*P n"]) -> UInt32[Array, "*P n"]:
    """The second words of pairs, in rising order of the pairs."""
    return jax.lax.sort((first, second), num_keys=2)[1]


@_by_pair.def_vmap
def _by_pair_in_groups(num_groups, batched, first, second):
    pairs = [
        x if is_batched else jnp.broadcast_to(x, (num_groups, *x.shape))
        for x, is_batched in zip((first, second), batched, strict=True)
    ]
    return jax.lax.platform_dependent(*pairs, cpu=_in_blocks, default=_by_pair.fun), True


def _in_blocks(first: UInt32[Array, "P n"], second: UInt32[Array, "P n"]) -> UInt32[Array, "P n"]:
    num_groups, n = first.shape
    blocks = ceil_div(num_groups, _BLOCK)
    groups = ceil_div(num_groups, blocks)
    pairs = [
        jnp.pad(x, ((0, blocks * groups - num_groups), (0, 0))).reshape(blocks, groups, n) for x in (first, second)
    ]
    return jax.lax.map(lambda pair: _network(pair[0].T, pair[1].T).T, pairs).reshape(-1, n)[:num_groups]


def _network(first: UInt32[Array, "n P"], second: UInt32[Array, "n P"]) -> UInt32[Array, "n P"]:
    """Batcher's bitonic sort (1968) of every column: merges runs of 1, 2, 4, .. into runs that rise and fall in turns.

    Runs that are to fall are complemented while they are merged, so that every exchange puts the smaller pair first.
    """
    n, num_groups = first.shape
    bits = (n - 1).bit_length()
    padding = jnp.full((2**bits - n, num_groups), _LAST, jnp.uint32)
    first, second = (jnp.concatenate([x, padding]) for x in (first, second))
    for bit in range(1, bits + 1):
        falls = (jnp.arange(2**bits, dtype=jnp.uint32) >> bit) % 2 * jnp.uint32(_LAST)
        first, second = (x ^ falls[:, None] for x in (first, second))
        for distance in reversed(range(bit)):
            first, second = _exchange(first, second, 2**distance)
        first, second = (x ^ falls[:, None] for x in (first, second))
    return second[:n]


def _exchange(
    first: UInt32[Array, "n P"], second: UInt32[Array, "n P"], distance: int
) -> tuple[UInt32[Array, "n P"], UInt32[Array, "n P"]]:
    """Puts the smaller of two pairs first, for all pairs that are `distance` apart."""
    (a, b), (c, d) = (jnp.moveaxis(x.reshape(-1, 2, distance, x.shape[1]), 1, 0) for x in (first, second))
    swap = (a > b) | ((a == b) & (c > d))
    first = jnp.stack([jnp.minimum(a, b), jnp.maximum(a, b)], 1).reshape(first.shape)
    return first, jnp.stack([jnp.where(swap, d, c), jnp.where(swap, c, d)], 1).reshape(first.shape)


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
