"""Surrogates: the loss of a token, as a function of its importance ratio and advantage.

A surrogate gets the ratios ρ [R, T] to the old policy, the current log-probabilities [R, T], the advantages [R, 1], and
the options `epsilon`, `epsilon_high`, `delta`; it returns a loss per token, and the masks of the tokens whose ρ
was clipped from below and from above.
"""

import jax
import jax.numpy as jnp

from pods_jax.registry import Registry

SURROGATES: Registry = Registry("surrogate")


@SURROGATES.register("clip")
def clip(ratio, logprobs, advantages, *, epsilon, epsilon_high, delta):
    """-min(ρA, clip(ρ, 1 - epsilon, 1 + epsilon_high) A) (PPO; Schulman et al. 2017; DAPO's clip-higher).

    delta bounds ρ in the unclipped branch, which matters for A < 0 (the c of dual clip, Ye et al. 2020; TRL's name).
    """
    low = 1 - epsilon
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    unclipped = ratio if delta is None else jnp.minimum(ratio, delta)
    loss = -jnp.minimum(unclipped * advantages, jnp.clip(ratio, low, high) * advantages)
    return loss, (ratio < low) & (advantages < 0), (ratio > high) & (advantages > 0)


@SURROGATES.register("cispo")
def cispo(ratio, logprobs, advantages, *, epsilon, epsilon_high, delta):
    """-sg(min(ρ, epsilon_high)) A log π, where every token has a gradient (CISPO; MiniMax-M1 2025, arXiv 2506.13585).

    As in TRL, epsilon_high is the largest ratio itself (5.0 in ScaleRL), and nothing bounds ρ below; verl's `cispo`
    clips to [1 - clip_ratio_low, 1 + clip_ratio_high], so its clip_ratio_high is our epsilon_high - 1.
    """
    if epsilon_high is None:
        raise ValueError("surrogate 'cispo' needs epsilon_high, the largest ratio")
    weight = jax.lax.stop_gradient(jnp.minimum(ratio, epsilon_high))
    return -weight * advantages * logprobs, jnp.zeros(ratio.shape, bool), (ratio > epsilon_high) & (advantages > 0)


@SURROGATES.register("reinforce")
def reinforce(ratio, logprobs, advantages, *, epsilon, epsilon_high, delta):
    """-ρA, never clipped (REINFORCE; Williams 1992): the single-device code of PODS, where ρ = 1 in value."""
    unclipped = jnp.zeros(ratio.shape, bool)
    return -ratio * advantages, unclipped, unclipped
