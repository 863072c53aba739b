"""Advantage estimators of REINFORCE with other baselines and scales than GRPO's. None of them uses `scale_rewards`."""

import jax.numpy as jnp

from pods_jax.objective.advantages import ADVANTAGES, centred_rewards, divided, varies


@ADVANTAGES.register("rloo")
def rloo(rewards, mask, lengths, *, scale_rewards, ddof, epsilon):
    """r_i minus the mean of the group's others = g/(g - 1) (r_i - mean) (RLOO; Ahmadian et al. 2024, arXiv 2402.14740).

    Not divided by any deviation (TRL's RLOO has `normalize_advantages` for that).
    """
    count = mask.sum(-1, keepdims=True)
    return centred_rewards(rewards, mask) * count / jnp.maximum(count - 1, 1)


@ADVANTAGES.register("reinforce_pp")
def reinforce_pp(rewards, mask, lengths, *, scale_rewards, ddof, epsilon):
    """(r - mean) / (std + epsilon) over all tokens of the batch (REINFORCE++; Hu 2025, arXiv 2501.03262).

    A token's return is its sequence's reward (discount 1, no KL in the reward), so long completions weigh more in mean
    and deviation, as in verl and OpenRLHF. There is no group baseline: a group of equal rewards does contribute.
    """
    centred, std = _over_tokens(rewards, mask, lengths, ddof)
    return divided(centred, std + epsilon)


@ADVANTAGES.register("reinforce_pp_baseline")
def reinforce_pp_baseline(rewards, mask, lengths, *, scale_rewards, ddof, epsilon):
    """(r - group mean) / (std + epsilon), the deviation over all tokens of the batch (Hu 2025, arXiv 2501.03262).

    verl and OpenRLHF then subtract the tokens' mean too, which unequal lengths move away from 0, and by which groups
    of equal rewards would get an advantage; here they get exactly 0.
    """
    centred = centred_rewards(rewards, mask)
    return divided(centred, _over_tokens(centred, mask, lengths, ddof)[1] + epsilon)


@ADVANTAGES.register("reinforce_rej")
def reinforce_rej(rewards, mask, lengths, *, scale_rewards, ddof, epsilon):
    """The bare reward, and 0 in groups of equal rewards (Reinforce-Rej; Xiong et al. 2025, arXiv 2504.11343)."""
    return jnp.where(mask & varies(rewards, mask), rewards, 0.0)


def _over_tokens(values, mask, lengths, ddof):
    """Deviations from the batch's mean over tokens, 0 where nothing varies; and their standard deviation."""
    tokens = jnp.where(mask, lengths, 0).astype(values.dtype)
    low, high = jnp.where(mask, values, jnp.inf).min(), jnp.where(mask, values, -jnp.inf).max()
    shifted = jnp.where(mask & (high > low), values - low, 0.0)
    centred = jnp.where(mask & (high > low), shifted - (tokens * shifted).sum() / jnp.maximum(tokens.sum(), 1), 0.0)
    return centred, jnp.sqrt((tokens * jnp.square(centred)).sum() / jnp.maximum(tokens.sum() - ddof, 1))
