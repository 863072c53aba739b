"""Sampling completions, and scoring them."""

from pods_jax.learner.logprobs import group_logprobs, token_logprobs
from pods_jax.rollout.sampler import Completions, generate

__all__ = ["Completions", "generate", "group_logprobs", "token_logprobs"]
