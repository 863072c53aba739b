"""Policy losses: a loss per token, and the weight that each token has in the batch's loss.

`policy_loss` is their product, summed. Because the weights of all aggregation modes depend only on the masks, the
learner computes them once over the whole batch and accumulates exact gradients over any micro-batches.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pods_jax.objective.corrections import importance_weights
from pods_jax.objective.ratios import LEVELS, MAX_LOG_RATIO, bounded_exp
from pods_jax.objective.surrogates import SURROGATES, SurrogateOptions
from pods_jax.registry import Registry

Metrics = dict[str, Array]
_WEIGHT = "sampling/importance_sampling_ratio"


# ---------------------------------------------------------------- weights of tokens

LOSSES: Registry = Registry("loss_type")
"""Weights of tokens in the batch's loss, by TRL's loss types: (lengths [R], mask [R, T], max_completion_length) ->
weights [R, T]. A row of length 0 is padding. A row of a longer completion that is masked whole counts as a sequence."""


@LOSSES.register("grpo")
def grpo_weights(lengths, mask, max_completion_length):
    """Mean over each sequence's tokens, then over sequences (Shao et al. 2024, arXiv 2402.03300)."""
    return mask / jnp.maximum(mask.sum(-1, keepdims=True), 1) / _num_sequences(lengths)


@LOSSES.register("bnpo")
@LOSSES.register("dapo")
def token_mean_weights(lengths, mask, max_completion_length):
    """Mean over all tokens of the batch (DAPO; Yu et al. 2025, arXiv 2503.14476).

    TRL's `bnpo` is the same mean taken over each micro-batch; with exact accumulation the two names coincide here.
    """
    return mask / jnp.maximum(mask.sum(), 1)


@LOSSES.register("dr_grpo")
def dr_grpo_weights(lengths, mask, max_completion_length):
    """Sum over tokens divided by a constant, max_completion_length, then mean over sequences.

    Dr. GRPO; Liu et al. 2025, arXiv 2503.20783.
    """
    if max_completion_length is None:
        raise ValueError("loss_type 'dr_grpo' divides by max_completion_length: pass it")
    return mask / max_completion_length / _num_sequences(lengths)


def _num_sequences(lengths):
    return jnp.maximum((lengths > 0).sum(), 1)


def token_weights(
    mask: Bool[Array, "R T"],
    loss_type: str,
    max_completion_length: int | None = None,
    lengths: Int[Array, " R"] | None = None,
) -> Float[Array, "R T"]:
    """The weight of every token in the loss of this batch.

    Args:
      mask: the tokens that count.
      lengths: of the completions, 0 for padding; None: every row is a sequence, also one that is masked whole.
    """
    if lengths is None:
        lengths = jnp.maximum(mask.sum(-1), 1)
    return LOSSES[loss_type](lengths, mask.astype(jnp.float32), max_completion_length)


# ---------------------------------------------------------------- losses of tokens


def token_losses(
    logprobs: Float[Array, "R T"],
    old_logprobs: Float[Array, "R T"],
    advantages: Float[Array, " R"],
    mask: Bool[Array, "R T"],
    *,
    surrogate: str = "clip",
    beta: float = 0.0,
    ref_logprobs: Float[Array, "R T"] | None = None,
    kl_estimator: str = "k3",
    use_bias_correction_kl: bool = True,
    importance_sampling_level: str = "token",
    importance_sampling_mode: str = "token_truncate",
    importance_sampling_cap: float | None = None,
    importance_sampling_floor: float | None = None,
    behaviour_logprobs: Float[Array, "R T"] | None = None,
    policy_mask: Bool[Array, "R T"] | None = None,
    **options: float | None,
) -> tuple[Float[Array, "R T"], dict[str, Bool[Array, "R T"] | Float[Array, "R T"]]]:
    """The surrogate of every token's ratio exp(logprobs - old_logprobs), plus beta times its KL to the reference.

    Also returns per-token statistics. TRL's option names.

    Args:
      surrogate: a name in `SURROGATES`; options: fields of `SurrogateOptions`.
      beta, ref_logprobs, kl_estimator: KL penalty inside the per-token loss; "k1", "k2" or "k3".
      use_bias_correction_kl: multiplies the KL estimate by the ratio, through which gradients flow too: with k1 and k3
        and the ratios of tokens, value and gradient are then unbiased for KL(policy || reference) (DeepSeek-V3.2,
        2025). The default is TRL's.
      importance_sampling_level: a name in `LEVELS`.
      importance_sampling_mode, importance_sampling_cap, importance_sampling_floor, behaviour_logprobs: the weight of
        `corrections.importance_weights`, by which the surrogate is multiplied. Cap and floor None: no weight.
      policy_mask: the tokens whose surrogate counts (TRL's high-entropy tokens); None: all. The KL counts everywhere.
    """
    logprobs = jnp.where(mask, logprobs, 0.0)
    old_logprobs = jnp.where(mask, old_logprobs, 0.0)
    ratio = bounded_exp(LEVELS[importance_sampling_level](logprobs - old_logprobs, mask))
    loss, low, high = SURROGATES[surrogate](ratio, logprobs, advantages[:, None], mask, SurrogateOptions(**options))
    stats = {"clip_ratio/low_mean": low, "clip_ratio/high_mean": high, "clip_ratio/region_mean": low | high}
    if policy_mask is not None:
        loss *= policy_mask
    if importance_sampling_cap is not None or importance_sampling_floor is not None:
        if behaviour_logprobs is None:
            raise ValueError("importance_sampling_cap and importance_sampling_floor need behaviour_logprobs")
        bounds = {"floor": importance_sampling_floor, "cap": importance_sampling_cap}
        weights = importance_weights(importance_sampling_mode, old_logprobs, behaviour_logprobs, mask, **bounds)
        loss *= weights
        stats |= {f"{_WEIGHT}/mean": weights, f"{_WEIGHT}/capped": _at_bounds(weights, **bounds)}
    if beta:
        if ref_logprobs is None:
            raise ValueError("beta > 0 needs ref_logprobs")
        stats["kl"] = kl_estimate(logprobs, jnp.where(mask, ref_logprobs, 0.0), kl_estimator)
        if use_bias_correction_kl:
            stats["kl"] *= ratio
        loss += beta * stats["kl"]
    return loss, stats


def _at_bounds(weights: Array, floor: float | None, cap: float | None) -> Array:
    """True for the weights that a bound has changed: moved to it, or set to 0."""
    return (weights == 0) | (weights == floor) | (weights == cap)


def kl_estimate(logprobs: Array, ref_logprobs: Array, estimator: str) -> Array:
    """Per-token estimate of KL(policy || reference) from the policy's samples (Schulman 2020): k1, k2 or k3."""
    d = jnp.clip(ref_logprobs - logprobs, -MAX_LOG_RATIO, MAX_LOG_RATIO)
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
