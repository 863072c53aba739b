"""Who gets rollouts, and which groups are trained on. Every file here is imported: a new allocator is one file."""

from pods_jax.allocation.base import ALLOCATORS, Allocator, Exhausted, option_problems
from pods_jax.registry import import_submodules

__all__ = ["ALLOCATORS", "Allocator", "Exhausted", "option_problems"]

import_submodules(__name__)
