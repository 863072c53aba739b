"""Policy losses: a loss per token, and the weight that each token has in the batch's loss.

`policy_loss` is their product, summed. Because the weights of all aggregation modes depend only on the masks, the
learner computes them once over the whole batch and accumulates exact gradients over any micro-batches.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pods_jax.objective.surrogates import SURROGATES
from pods_jax.registry import Registry

Metrics = dict[str, Array]
_MAX_LOG_RATIO = 20.0
_WEIGHT = "sampling/importance_sampling_ratio"

LOSSES: Registry = Registry("loss_type")
"""Aggregation modes by TRL's names: (lengths [R], mask [R, T], max_completion_length) -> weights [R, T]."""
LEVELS: Registry = Registry("importance_sampling_level")
"""Units of the ratio: (log-ratios of tokens [R, T], mask [R, T]) -> log-ratios [R, T]."""


@LOSSES.register("grpo")
def grpo_weights(lengths, mask, max_completion_length):
    """Mean over each sequence's tokens, then over sequences that have any (Shao et al. 2024, arXiv 2402.03300)."""
    return mask / jnp.maximum(lengths, 1)[:, None] / jnp.maximum((lengths > 0).sum(), 1)


@LOSSES.register("bnpo")
@LOSSES.register("dapo")
def token_mean_weights(lengths, mask, max_completion_length):
    """Mean over all tokens of the batch (DAPO; Yu et al. 2025, arXiv 2503.14476).

    TRL's `bnpo` is the same mean taken over each micro-batch; with exact accumulation the two names coincide here.
    """
    return mask / jnp.maximum(lengths.sum(), 1)


@LOSSES.register("dr_grpo")
def dr_grpo_weights(lengths, mask, max_completion_length):
    """Sum over tokens divided by a constant, max_completion_length, then mean over sequences.

    Dr. GRPO; Liu et al. 2025, arXiv 2503.20783.
    """
    if max_completion_length is None:
        raise ValueError("loss_type 'dr_grpo' divides by max_completion_length: pass it")
    return mask / max_completion_length / jnp.maximum((lengths > 0).sum(), 1)


def token_weights(
    mask: Bool[Array, "R T"], loss_type: str, max_completion_length: int | None = None
) -> Float[Array, "R T"]:
    """The weight of every token in the loss of this batch; fully masked sequences leave the counts too."""
    lengths = mask.sum(-1)
    return LOSSES[loss_type](lengths, mask.astype(jnp.float32), max_completion_length)


def token_losses(
    logprobs: Float[Array, "R T"],
    old_logprobs: Float[Array, "R T"],
    advantages: Float[Array, " R"],
    mask: Bool[Array, "R T"],
    *,
    surrogate: str = "clip",
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
    beta: float = 0.0,
    ref_logprobs: Float[Array, "R T"] | None = None,
    kl_estimator: str = "k3",
    use_bias_correction_kl: bool = False,
    importance_sampling_level: str = "token",
    importance_sampling_cap: float | None = None,
    behaviour_logprobs: Float[Array, "R T"] | None = None,
) -> tuple[Float[Array, "R T"], dict[str, Bool[Array, "R T"] | Float[Array, "R T"]]]:
    """The surrogate of every token's ratio exp(logprobs - old_logprobs), plus beta times its KL to the reference.

    Also returns per-token statistics. TRL's option names.

    Args:
      surrogate: a name in `SURROGATES`.
      epsilon, epsilon_high, delta: what the surrogate clips at.
      beta, ref_logprobs, kl_estimator: KL penalty inside the per-token loss; "k1", "k2" or "k3".
      use_bias_correction_kl: multiply the KL estimate by the token's ratio, through which gradients flow too: with k1
        and k3, value and gradient are then unbiased for KL(policy || reference) (DeepSeek-V3.2, 2025).
      importance_sampling_level: a name in `LEVELS`.
      importance_sampling_cap, behaviour_logprobs: multiply the surrogate by min(old / behaviour, cap), without
        gradient, where behaviour is the policy that sampled: truncated importance sampling for what sampler and
        learner disagree on, and for staleness (Yao et al. 2025; TRL's "token_truncate"). None: no correction.
    """
    logprobs = jnp.where(mask, logprobs, 0.0)
    old_logprobs = jnp.where(mask, old_logprobs, 0.0)
    log_ratio = logprobs - old_logprobs
    loss, low, high = SURROGATES[surrogate](
        bounded_exp(LEVELS[importance_sampling_level](log_ratio, mask)),
        logprobs,
        advantages[:, None],
        epsilon=epsilon,
        epsilon_high=epsilon_high,
        delta=delta,
    )
    stats = {"clip_ratio/low_mean": low, "clip_ratio/high_mean": high, "clip_ratio/region_mean": low | high}
    if importance_sampling_cap is not None:
        weights = truncated_weights(old_logprobs, behaviour_logprobs, mask, importance_sampling_cap)
        loss *= weights
        stats |= {f"{_WEIGHT}/mean": weights, f"{_WEIGHT}/capped": weights == importance_sampling_cap}
    if beta:
        if ref_logprobs is None:
            raise ValueError("beta > 0 needs ref_logprobs")
        stats["kl"] = kl_estimate(logprobs, jnp.where(mask, ref_logprobs, 0.0), kl_estimator)
        if use_bias_correction_kl:
            stats["kl"] *= bounded_exp(log_ratio)
        loss += beta * stats["kl"]
    return loss, stats


def bounded_exp(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp, its input clamped to [-20, 20]: clamping its output would leave NaN gradients."""
    return jnp.exp(jnp.clip(log_ratio, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))


def truncated_weights(
    old_logprobs: Float[Array, "R T"],
    behaviour_logprobs: Float[Array, "R T"] | None,
    mask: Bool[Array, "R T"],
    cap: float,
) -> Float[Array, "R T"]:
    """min(old / behaviour, cap) of every token, without gradient."""
    if behaviour_logprobs is None:
        raise ValueError("importance_sampling_cap needs behaviour_logprobs")
    log_weight = jnp.where(mask, old_logprobs - behaviour_logprobs, 0.0)
    return jax.lax.stop_gradient(jnp.minimum(bounded_exp(log_weight), cap))


# ---------------------------------------------------------------- levels of the importance ratio


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


# ---------------------------------------------------------------- KL


def kl_estimate(logprobs: Array, ref_logprobs: Array, estimator: str) -> Array:
    """Per-token estimate of KL(policy || reference) from the policy's samples (Schulman 2020): k1, k2 or k3."""
    d = jnp.clip(ref_logprobs - logprobs, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    if estimator not in _KL:
        raise ValueError(f"kl_estimator must be one of {', '.join(_KL)}, got {estimator!r}")
    return _KL[estimator](d)


_KL = {"k1": lambda d: -d, "k2": lambda d: jnp.square(d) / 2, "k3": lambda d: jnp.expm1(d) - d}


# ---------------------------------------------------------------- the loss of a batch


def policy_loss(
    logprobs: Float[Array, "R T"],
    old_logprobs: Float[Array, "R T"] | None,
    advantages: Float[Array, " R"],
    mask: Bool[Array, "R T"],
    *,
    loss_type: str = "grpo",
    max_completion_length: int | None = None,
    **options,
) -> tuple[Float[Array, ""], Metrics]:
    """The loss of a batch of completions and its metrics (means over unmasked tokens, TRL's names).

    Args:
      logprobs: of the sampled tokens under the current policy.
      old_logprobs: under the policy that the ratio is taken against; None: the current one, so that every ratio is 1.
      advantages: one a sequence.
      mask: the tokens that count. Comes from lengths, never from token ids.
      loss_type: a name in `LOSSES`. TRL's default is "dapo"; ours is "grpo", the PODS paper's.
      options: see `token_losses`.
    """
    weights = token_weights(mask, loss_type, max_completion_length)
    loss, sums = weighted_loss(logprobs, old_logprobs, advantages, mask, weights, **options)
    return loss, {name: total / jnp.maximum(mask.sum(), 1) for name, total in sums.items()}


def weighted_loss(
    logprobs: Float[Array, "R T"],
    old_logprobs: Float[Array, "R T"] | None,
    advantages: Float[Array, " R"],
    mask: Bool[Array, "R T"],
    weights: Float[Array, "R T"],
    **options,
) -> tuple[Float[Array, ""], Metrics]:
    """The share of R rollouts in a batch's loss, and the sums of their per-token statistics.

    Args:
      weights: of every token in the whole batch's loss (see `token_weights`). The rest is as in `policy_loss`.
    """
    old = jax.lax.stop_gradient(logprobs) if old_logprobs is None else old_logprobs
    losses, stats = token_losses(logprobs, old, advantages, mask, **options)
    sums = {name: jnp.where(mask, values, 0.0).sum() for name, values in stats.items()}
    return jnp.where(mask, losses, 0.0).ravel() @ weights.ravel(), sums


def completion_mask(lengths: Int[Array, "..."], max_length: int) -> Bool[Array, "... T"]:
    """Mask of the completion tokens, from lengths (the end-of-sequence token counted)."""
    return jnp.arange(max_length) < lengths[..., None]
