"""Advantages: rewards compared within a group or a batch, by GRPO's and by REINFORCE's estimators.

An estimator gets rewards [G, g], which members count [G, g], the completions' lengths [G, g] in tokens, and the
options `scale_rewards`, `ddof`, `epsilon`; it returns advantages [G, g], 0 for members that do not count.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pods_jax.doors import refuse_group_arrays
from pods_jax.registry import Registry

ADVANTAGES: Registry = Registry("advantage estimator")


def estimate_advantages(
    estimator: str,
    rewards: Float[Array, "G g"],
    lengths: Int[Array, "G g"],
    *,
    scale_rewards: str = "group",
    ddof: int = 1,
    epsilon: float = 1e-4,
    mask: Bool[Array, "G g"] | None = None,
) -> Float[Array, "G g"]:
    """Advantages under the named estimator; options and mask as in `group_advantages`."""
    mask = jnp.isfinite(rewards) if mask is None else mask & jnp.isfinite(rewards)
    options = {"scale_rewards": scale_rewards, "ddof": ddof, "epsilon": epsilon}
    return ADVANTAGES[estimator](jnp.where(mask, rewards, 0.0), mask, lengths, **options)


@ADVANTAGES.register("grpo")
def grpo(rewards, mask, lengths, *, scale_rewards, ddof, epsilon):
    """`group_advantages`."""
    return group_advantages(rewards, mask=mask, scale_rewards=scale_rewards, ddof=ddof, epsilon=epsilon)


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
      scale_rewards: divisor: "group" (each group's std), "batch" (the std of all rewards of the batch, as in TRL),
        "pooled" (one std over all members, around each group's mean), "none" (no division: Dr. GRPO, Liu et al. 2025).
      ddof: 1 for the sample standard deviation (TRL, the PODS authors' code), 0 for the population's.
      epsilon: added to the standard deviation.
      mask: the members that count (default: all).

    Raises:
      UserError: rewards or mask have another shape than [G, g].
    """
    refuse_group_arrays(rewards, {"mask": mask})
    mask = jnp.isfinite(rewards) if mask is None else mask & jnp.isfinite(rewards)
    centred = centred_rewards(rewards, mask)
    if scale_rewards == "none":
        return centred
    if scale_rewards not in _SCALES:
        names = ", ".join([*_SCALES, "none"])
        raise ValueError(f"scale_rewards must be one of {names}, got {scale_rewards!r}")
    return divided(centred, _SCALES[scale_rewards](centred, rewards, mask, ddof) + epsilon)


def divided(centred: Array, scale: Array | float) -> Array:
    """centred / scale; 0 where the scale is 0, which it is where nothing varies and epsilon is 0."""
    return centred / jnp.where(scale > 0, scale, 1.0)


def centred_rewards(rewards: Float[Array, "G g"], mask: Bool[Array, "G g"]) -> Float[Array, "G g"]:
    """r - mean over each group's members; exactly 0 in groups that do not vary, and for those that do not count."""
    low = jnp.where(mask, rewards, jnp.inf).min(-1, keepdims=True)
    values = jnp.where(mask, rewards - low, 0.0)
    mean = values.sum(-1, keepdims=True) / jnp.maximum(mask.sum(-1, keepdims=True), 1)
    return jnp.where(mask & varies(rewards, mask), values - mean, 0.0)


def varies(rewards: Float[Array, "G g"], mask: Bool[Array, "G g"]) -> Bool[Array, "G 1"]:
    """True for each group that has two members of different reward."""
    low = jnp.where(mask, rewards, jnp.inf).min(-1, keepdims=True)
    high = jnp.where(mask, rewards, -jnp.inf).max(-1, keepdims=True)
    return high > low


def _group_std(centred, rewards, mask, ddof):
    return _std(centred, mask.sum(-1, keepdims=True), ddof, axis=-1)


def _pooled_std(centred, rewards, mask, ddof):
    return _std(centred, mask.sum(), ddof)


def _batch_std(centred, rewards, mask, ddof):
    return _std(centred_rewards(rewards.reshape(1, -1), mask.reshape(1, -1)), mask.sum(), ddof)


def _std(centred: Array, count: Array, ddof: int, axis: int | None = None) -> Array:
    """The deviation of values around a mean that was taken off; masked values are 0."""
    squares = jnp.square(centred).sum(axis, keepdims=axis is not None)
    return jnp.sqrt(squares / jnp.maximum(count.astype(centred.dtype) - ddof, 1))


_SCALES = {"group": _group_std, "pooled": _pooled_std, "batch": _batch_std}


# ---------------------------------------------------------------- REINFORCE's estimators


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
    low = jnp.where(mask, values, jnp.inf).min()
    high = jnp.where(mask, values, -jnp.inf).max()
    shifted = jnp.where(mask & (high > low), values - low, 0.0)
    centred = jnp.where(mask & (high > low), shifted - (tokens * shifted).sum() / jnp.maximum(tokens.sum(), 1), 0.0)
    return centred, jnp.sqrt((tokens * jnp.square(centred)).sum() / jnp.maximum(tokens.sum() - ddof, 1))
