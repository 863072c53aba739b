"""Meshes and partition rules."""

from pods_jax.parallel.hosts import place, to_host
from pods_jax.parallel.mesh import make_mesh
from pods_jax.parallel.partition import (
    batch_sharding,
    num_shards,
    param_shardings,
    replicated,
    weight_shardings,
)

__all__ = [
    "batch_sharding",
    "make_mesh",
    "num_shards",
    "param_shardings",
    "place",
    "replicated",
    "to_host",
    "weight_shardings",
]
