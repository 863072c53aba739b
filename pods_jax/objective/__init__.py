"""Advantages and policy losses of the GRPO family. Every file here is imported: a new loss is one file."""

from pods_jax.objective.advantages import ADVANTAGES, estimate_advantages, group_advantages
from pods_jax.objective.corrections import CORRECTIONS
from pods_jax.objective.losses import LOSSES, policy_loss, token_losses, token_weights
from pods_jax.objective.ratios import LEVELS
from pods_jax.objective.surrogates import SURROGATES
from pods_jax.registry import import_submodules

__all__ = [
    "ADVANTAGES",
    "CORRECTIONS",
    "LEVELS",
    "LOSSES",
    "SURROGATES",
    "estimate_advantages",
    "group_advantages",
    "policy_loss",
    "token_losses",
    "token_weights",
]

import_submodules(__name__)
