"""Environments, which answer the policy's turns in rollouts of several turns. Every file here is imported."""

from pods_jax.environments.environment import (
    ENVIRONMENTS,
    Environment,
    Step,
    option_problems,
    register,
    reset,
    step,
)  # fmt: skip
from pods_jax.registry import import_submodules

__all__ = ["ENVIRONMENTS", "Environment", "Step", "option_problems", "register", "reset", "step"]

import_submodules(__name__)
