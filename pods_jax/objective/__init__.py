"""Advantages and policy losses of the GRPO family."""

from pods_jax.objective.advantages import group_advantages
from pods_jax.objective.losses import LOSSES, policy_loss, token_losses, token_weights

__all__ = ["LOSSES", "group_advantages", "policy_loss", "token_losses", "token_weights"]
