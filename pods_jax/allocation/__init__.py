"""Allocators: they decide which prompts get how many rollouts, and which of the verified groups are trained on.

Every file of this package is imported, so that a new allocator is one file (see `docs/allocation.md`).
"""

from pods_jax.allocation.base import ALLOCATORS, Allocator, Exhausted
from pods_jax.allocation.options import option_problems
from pods_jax.registry import import_submodules

__all__ = ["ALLOCATORS", "Allocator", "Exhausted", "option_problems"]

import_submodules(__name__)
