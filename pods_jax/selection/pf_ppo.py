"""PF-PPO: resampling with replacement by a weight on the reward (Shen et al. 2024, arXiv 2409.06957; verl's weights).

The m draws are independent, so a rollout may be kept more than once, and an invalid one only if the whole group is.
Weights that are all 0 count as equal. verl resamples its whole batch, here every group is resampled by itself.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from pods_jax.selection.rules import RULES


def _resample(
    weights: Float[Array, " n"], num_kept: int, key: Key[Array, ""], valid: Bool[Array, " n"]
) -> Int[Array, " m"]:
    weights = jnp.where(valid, weights, 0.0)
    weights = jnp.where(weights.any(), weights, valid | ~valid.any())
    return jax.random.categorical(key, jnp.log(weights), shape=(num_kept,))


def _extremes(rewards, valid):
    return jnp.where(valid, rewards, jnp.inf).min(), jnp.where(valid, rewards, -jnp.inf).max()


@RULES.register("pf_ppo_pow")
def pf_ppo_pow(rewards, num_kept, key, valid):
    """Weight r^2."""
    largest = jnp.abs(rewards).max()
    return _resample(jnp.square(rewards / jnp.where(largest > 0, largest, 1.0)), num_kept, key, valid)


@RULES.register("pf_ppo_max_min")
def pf_ppo_max_min(rewards, num_kept, key, valid):
    """Weight 1 for the group's highest and lowest rewards, 0 for the others."""
    low, high = _extremes(rewards, valid)
    return _resample(jnp.where((rewards == low) | (rewards == high), 1.0, 0.0), num_kept, key, valid)


@RULES.register("pf_ppo_max_random")
def pf_ppo_max_random(rewards, num_kept, key, valid):
    """Weight 0.4 for the group's highest reward, 0.1 for the others."""
    _, high = _extremes(rewards, valid)
    return _resample(jnp.where(rewards == high, 0.4, 0.1), num_kept, key, valid)
