"""Group-relative advantages."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def group_advantages(
    rewards: Float[Array, "G g"],
    *,
    scale_rewards: str = "group",
    ddof: int = 1,
    epsilon: float = 1e-4,
    mask: Bool[Array, "G g"] | None = None,
) -> Float[Array, "G g"]:
    """(r - mean) / (std + epsilon) within each group (GRPO, Shao et al. 2024); statistics over the given members.

    A group whose rewards are all equal (max == min), or that has fewer than two members, gets exactly 0; so do masked
    members. Two-pass variance.

    Args:
      rewards: one row a group; rewards that are not finite are masked.
      scale_rewards: "group" (each group's std), "batch" (one std over all members of all groups, around each
        group's mean), "none" (no division: Dr. GRPO, Liu et al. 2025).
      ddof: 1 for the sample standard deviation (TRL, the PODS authors' code), 0 for the population's.
      epsilon: added to the standard deviation.
      mask: which members count (default: all).
    """
    mask = jnp.isfinite(rewards) if mask is None else mask & jnp.isfinite(rewards)
    low = jnp.where(mask, rewards, jnp.inf).min(-1, keepdims=True)
    values = jnp.where(mask, rewards - low, 0.0)
    count = mask.sum(-1, keepdims=True)
    mean = values.sum(-1, keepdims=True) / jnp.maximum(count, 1)
    varies = jnp.where(mask, rewards, -jnp.inf).max(-1, keepdims=True) > jnp.where(mask, rewards, jnp.inf).min(
        -1, keepdims=True
    )
    centred = jnp.where(mask & varies, values - mean, 0.0)
    return centred / _scale(centred, count, scale_rewards, ddof, epsilon)


def _scale(centred: Array, count: Array, scale_rewards: str, ddof: int, epsilon: float) -> Array | float:
    if scale_rewards == "none":
        return 1.0
    squares, count = jnp.square(centred).sum(-1, keepdims=True), count.astype(centred.dtype)
    if scale_rewards == "batch":
        squares, count = squares.sum(), count.sum()
    elif scale_rewards != "group":
        raise ValueError(f"scale_rewards must be 'group', 'batch' or 'none', got {scale_rewards!r}")
    return jnp.sqrt(squares / jnp.maximum(count - ddof, 1)) + epsilon
