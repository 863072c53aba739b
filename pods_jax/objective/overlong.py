"""Reward shaping by length."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def soft_overlong_penalty(
    lengths: Int[Array, "..."], max_completion_length: int, cache_length: int
) -> Float[Array, "..."]:
    """What DAPO adds to the reward of a long completion (Yu et al. 2025, eq. 13), in -1..0.

    0 up to max_completion_length - cache_length tokens, then linear down to -1 at max_completion_length.

    Args:
      lengths: in tokens, the end-of-sequence token counted.
      cache_length: how many tokens before the limit the penalty begins.
    """
    return -jnp.clip((lengths - (max_completion_length - cache_length)) / cache_length, 0.0, 1.0)
