"""Surrogates: the loss of a token, as a function of its importance ratio and advantage.

A surrogate gets the ratios ρ [R, T] to the old policy, the current log-probabilities [R, T], the advantages [R, 1], the
mask of the completions' tokens [R, T], and `SurrogateOptions`. It returns a loss per token, and the masks of the tokens
whose ρ was clipped from below and from above.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pods_jax.registry import Registry

SURROGATES: Registry = Registry("surrogate")


class SurrogateOptions(NamedTuple):
    """TRL's options of the token loss.

    Attributes:
      epsilon, epsilon_high: clipping range; epsilon_high None: epsilon.
      delta: bound of the unclipped ratio; None: none.
      sapo_temperature_pos, sapo_temperature_neg: of SAPO's gate, for advantages above 0 and for the others.
    """

    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    sapo_temperature_pos: float = 1.0
    sapo_temperature_neg: float = 1.05

    @property
    def high(self) -> float:
        """The upper epsilon."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high


def _unclipped(ratio):
    return jnp.zeros(ratio.shape, bool)


@SURROGATES.register("clip")
def clip(ratio, logprobs, advantages, mask, options):
    """-min(ρA, clip(ρ, 1 - epsilon, 1 + epsilon_high) A) (PPO; Schulman et al. 2017; DAPO's clip-higher).

    delta bounds ρ in the unclipped branch, which matters for A < 0 (the c of dual clip, Ye et al. 2020; TRL's name).
    """
    low = 1 - options.epsilon
    high = 1 + options.high
    unclipped = ratio if options.delta is None else jnp.minimum(ratio, options.delta)
    loss = -jnp.minimum(unclipped * advantages, jnp.clip(ratio, low, high) * advantages)
    return loss, (ratio < low) & (advantages < 0), (ratio > high) & (advantages > 0)


@SURROGATES.register("cispo")
def cispo(ratio, logprobs, advantages, mask, options):
    """-sg(min(ρ, epsilon_high)) A log π, where every token has a gradient (CISPO; MiniMax-M1 2025, arXiv 2506.13585).

    As in TRL, epsilon_high is the largest ratio itself (5.0 in ScaleRL), and nothing bounds ρ below; verl's `cispo`
    clips to [1 - clip_ratio_low, 1 + clip_ratio_high], so its clip_ratio_high is our epsilon_high - 1.
    """
    if options.epsilon_high is None:
        raise ValueError("surrogate 'cispo' needs epsilon_high, the largest ratio")
    weight = jax.lax.stop_gradient(jnp.minimum(ratio, options.epsilon_high))
    return -weight * advantages * logprobs, _unclipped(ratio), (ratio > options.epsilon_high) & (advantages > 0)


@SURROGATES.register("reinforce")
def reinforce(ratio, logprobs, advantages, mask, options):
    """-ρA, never clipped (REINFORCE; Williams 1992): the single-device code of PODS, where ρ = 1 in value."""
    return -ratio * advantages, _unclipped(ratio), _unclipped(ratio)


@SURROGATES.register("sapo")
def sapo(ratio, logprobs, advantages, mask, options):
    """-(4 / τ) sigmoid(τ (ρ - 1)) A, a soft gate in place of the clip (SAPO; Gao et al. 2025, arXiv 2511.20347).

    τ is sapo_temperature_pos where A > 0, else sapo_temperature_neg. TRL pairs it with `loss_type` "grpo".
    """
    temperature = jnp.where(advantages > 0, options.sapo_temperature_pos, options.sapo_temperature_neg)
    gate = jax.nn.sigmoid(temperature * (ratio - 1)) * 4 / temperature
    return -gate * advantages, _unclipped(ratio), _unclipped(ratio)


@SURROGATES.register("gmpo")
def gmpo(ratio, logprobs, advantages, mask, options):
    """-A times the geometric mean of a sequence's clipped ratios (GMPO; Zhao et al. 2025, arXiv 2507.20673, Alg. 1).

    log ρ of a token is bounded by epsilon_high from above where A > 0, and by -epsilon from below where A < 0; both are
    0.4 in the paper. Every token of a sequence has the same loss: `loss_type` "grpo" gives the paper's objective.
    """
    log_ratio = jnp.log(ratio)
    low = (log_ratio < -options.epsilon) & (advantages < 0)
    high = (log_ratio > options.high) & (advantages > 0)
    bounded = jnp.where(low, -options.epsilon, jnp.where(high, options.high, log_ratio))
    total = jnp.where(mask, bounded, 0.0).sum(-1, keepdims=True)
    mean = total / jnp.maximum(mask.sum(-1, keepdims=True), 1)
    return jnp.broadcast_to(-jnp.exp(mean) * advantages, ratio.shape), low, high
