"""Rules that keep the m rollouts of highest score, for a score other than the reward."""

import jax.numpy as jnp

from pods_jax.selection.ordering import descending
from pods_jax.selection.rules import RULES


@RULES.register("max_abs_advantage")
def max_abs_advantage(rewards, num_kept, key, valid):
    """The m largest |r - mean| of the whole group (CPPO; Lin et al. 2025, arXiv 2503.22342).

    The paper keeps the whole group's advantages: `objective.statistics = 'group'`.
    """
    mean = jnp.where(valid, rewards, 0.0).sum() / jnp.maximum(valid.sum(), 1)
    return descending(jnp.abs(rewards - mean), key, valid)[:num_kept]


@RULES.register("shortest")
def shortest(rewards, num_kept, key, valid, lengths):
    """The m shortest completions, right or wrong (GFPO; Shrivastava et al. 2025, arXiv 2508.09726)."""
    return descending(-lengths.astype(rewards.dtype), key, valid)[:num_kept]


@RULES.register("reward_per_token")
def reward_per_token(rewards, num_kept, key, valid, lengths):
    """The m highest r / length (GFPO's token efficiency; Shrivastava et al. 2025, arXiv 2508.09726)."""
    return descending(rewards / jnp.maximum(lengths, 1), key, valid)[:num_kept]


@RULES.register("entropy")
def entropy(rewards, num_kept, key, valid, entropies):
    """The m rollouts of highest mean token entropy; rewards play no part. No canonical source."""
    return descending(entropies, key, valid)[:num_kept]
