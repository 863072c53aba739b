"""Half right, half wrong."""

import jax.numpy as jnp

from pods_jax.selection.ordering import descending, ends
from pods_jax.selection.rules import RULES

_POSITIVE = 0.7


@RULES.register("balanced")
def balanced(rewards, num_kept, key, valid):
    """floor(m/2) rollouts of reward > 0.7 and the rest of the others, each drawn at random, as far as both reach.

    The final down-sampling of Reinforce-Ada (Xiong et al. 2025, arXiv 2510.04996), which takes mean and std from all
    rollouts: `objective.statistics = 'group'`. On binary rewards it keeps as many correct ones as `max_variance`.
    """
    positive = valid & (rewards > _POSITIVE)
    num_valid = jnp.maximum(valid.sum(), num_kept)
    high = jnp.maximum(num_kept // 2, num_kept - (num_valid - positive.sum()))
    return ends(descending(positive.astype(rewards.dtype), key, valid), high, num_kept, num_valid)
