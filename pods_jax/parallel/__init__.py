"""Meshes, and the arrays that several devices and processes share."""

from pods_jax.parallel.hosts import place, to_host
from pods_jax.parallel.mesh import batch_sharding, make_mesh, make_meshes, num_shards, overlap_options, replicated

__all__ = [
    "batch_sharding",
    "make_mesh",
    "make_meshes",
    "num_shards",
    "overlap_options",
    "place",
    "replicated",
    "to_host",
]
