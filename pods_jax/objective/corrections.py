"""Weights that correct a token's loss for the policy that sampled it, under TRL's mode names.

Sampler and learner differ by rounding, and stale rollouts by updates. The weight is the ratio of the old policy, which
the surrogate's ratio is taken against, to the behaviour policy, which sampled (Yao et al. 2025; TRL's
`vllm_importance_sampling_mode`). It has no gradient.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pods_jax.objective.ratios import bounded_exp
from pods_jax.registry import Registry

CORRECTIONS: Registry = Registry("importance_sampling_mode")
"""(log-ratios of tokens [R, T], 0 where masked; floor; cap) -> weights [R, T] or [R, 1]."""


def importance_weights(
    mode: str,
    old_logprobs: Float[Array, "R T"],
    behaviour_logprobs: Float[Array, "R T"],
    mask: Bool[Array, "R T"],
    *,
    floor: float | None,
    cap: float | None,
) -> Float[Array, "R T"]:
    """The weight of every token under the named mode, without gradient.

    Args:
      floor, cap: bounds of the ratio; None: none.
    """
    log_ratios = jnp.where(mask, old_logprobs - behaviour_logprobs, 0.0)
    bounds = 0.0 if floor is None else floor, jnp.inf if cap is None else cap
    return jax.lax.stop_gradient(jnp.broadcast_to(CORRECTIONS[mode](log_ratios, *bounds), mask.shape))


@CORRECTIONS.register("token_truncate")
def token_truncate(log_ratios, floor, cap):
    """Every token's ratio, moved into the bounds."""
    return jnp.clip(bounded_exp(log_ratios), floor, cap)


@CORRECTIONS.register("token_mask")
def token_mask(log_ratios, floor, cap):
    """Every token's ratio, 0 outside of the bounds."""
    return _masked(bounded_exp(log_ratios), floor, cap)


@CORRECTIONS.register("sequence_truncate")
def sequence_truncate(log_ratios, floor, cap):
    """The ratio of the whole sequence, moved into the bounds."""
    return jnp.clip(_sequence_ratio(log_ratios), floor, cap)


@CORRECTIONS.register("sequence_mask")
def sequence_mask(log_ratios, floor, cap):
    """The ratio of the whole sequence, 0 outside of the bounds (TRL's default, with a cap of 3)."""
    return _masked(_sequence_ratio(log_ratios), floor, cap)


def _sequence_ratio(log_ratios):
    return bounded_exp(log_ratios.sum(-1, keepdims=True))


def _masked(ratio, floor, cap):
    return jnp.where((ratio < floor) | (ratio > cap), 0.0, ratio)
