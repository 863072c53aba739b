"""Importance ratios: their units, and exponentials whose gradients stay finite."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pods_jax.registry import Registry

MAX_LOG_RATIO = 20.0
LEVELS: Registry = Registry("importance_sampling_level")
"""Units of the ratio: (log-ratios of tokens [R, T], mask [R, T]) -> log-ratios [R, T]."""


def bounded_exp(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp, its input clamped to [-20, 20]: clamping its output would leave NaN gradients."""
    return jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


@LEVELS.register("token")
def token_level(log_ratio, mask):
    """Every token's own."""
    return log_ratio


@LEVELS.register("sequence")
def sequence_level(log_ratio, mask):
    """The mean over the sequence's tokens: its length-normalised ratio (GSPO; Zheng et al. 2025, arXiv 2507.18071)."""
    mean = log_ratio.sum(-1, keepdims=True) / jnp.maximum(mask.sum(-1, keepdims=True), 1)
    return jnp.broadcast_to(mean, mask.shape)


@LEVELS.register("sequence_token")
def sequence_token_level(log_ratio, mask):
    """The sequence's in value, each token's own in gradient (GSPO-token; Zheng et al. 2025, arXiv 2507.18071)."""
    sg = jax.lax.stop_gradient
    return sg(sequence_level(log_ratio, mask)) + (log_ratio - sg(log_ratio))
