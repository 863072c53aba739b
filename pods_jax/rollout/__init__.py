"""Sampling completions, and scoring them."""

from pods_jax.rollout.sampler import Completions, generate
from pods_jax.rollout.scoring import group_logprobs, token_logprobs

__all__ = ["Completions", "generate", "group_logprobs", "token_logprobs"]
