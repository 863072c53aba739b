"""Logits by strips of the vocabulary, over which sums and maxima are taken first."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

STRIP = 128
"""Neighbouring tokens in a strip."""


def in_strips(logits: Float[Array, "R V"]) -> Float[Array, "a b N STRIP"]:
    """The rows, in groups of b, by strips; the last strip is filled up with -inf.

    A TPU has an array of two dimensions in tiles of 8 x 128. With b = 8 its logits stay where they are, while
    [R, N, STRIP] would be a copy in another order.
    """
    R, V = logits.shape
    if V % STRIP:
        logits = jnp.pad(logits, ((0, 0), (0, -V % STRIP)), constant_values=-jnp.inf)
    b = math.gcd(R, 8)
    return logits.reshape(R // b, b, -1, STRIP)


def masses(logits: Float[Array, "R V"], top: Float[Array, " R"]) -> Float[Array, "R N"]:
    """exp(logits - top), summed over each strip."""
    strips = in_strips(logits)
    found = jnp.exp(strips - top.reshape(*strips.shape[:2], 1, 1)).sum(-1).reshape(len(top), -1)
    return jax.lax.optimization_barrier(found)  # else XLA makes their sum one over all logits, and reads these again


def maxima(logits: Float[Array, "R V"]) -> Float[Array, "R N"]:
    """The largest logit of each strip."""
    return in_strips(logits).max(-1).reshape(len(logits), -1)


def taken(logits: Float[Array, "R V"], which: Array) -> Float[Array, "R K"]:
    """The logits of some strips of each row, [R, k] their numbers: K = k STRIP."""
    strips = in_strips(logits)
    index = which.reshape(*strips.shape[:2], -1, 1)
    return jnp.take_along_axis(strips, index, 2).reshape(len(logits), -1)
