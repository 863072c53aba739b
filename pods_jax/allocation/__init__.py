"""Who gets rollouts: allocators decide what is generated, and which verified groups are trained on."""

from pods_jax.allocation import uniform
from pods_jax.allocation.base import ALLOCATORS, Allocator

__all__ = ["ALLOCATORS", "Allocator", "uniform"]
