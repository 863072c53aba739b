"""Placement of weights on the mesh by their logical axes, for loading, training and planning."""

from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pods_jax.errors import UserError
from pods_jax.models.decoder import ModelConfig, Weight, is_weight, model_weights

MESH_AXES = {"layers": None, "embed": "fsdp", "heads": "tensor", "mlp": "tensor", "vocab": "tensor", None: None}
"""The mesh axis of each logical axis of a weight."""

SPLITS = (
    ("tensor", "num_attention_heads"),
    ("tensor", "num_key_value_heads"),
    ("tensor", "intermediate_size"),
    ("fsdp", "hidden_size"),
)
"""Pairs of a mesh axis and a number of the model that it must divide."""


def param_shardings(config: ModelConfig, mesh: Mesh | AbstractMesh) -> Any:
    """A tree of NamedSharding in the shape of the model's parameters.

    Raises:
      UserError: a mesh axis does not divide a number that it splits. (A vocabulary that `tensor` does not divide is
        kept whole instead.)
    """
    for axis, field in SPLITS:
        if getattr(config, field) % mesh.shape[axis]:
            raise UserError(f"mesh axis {axis} = {mesh.shape[axis]} does not divide {field} = {getattr(config, field)}")
    return weight_shardings(model_weights(config), mesh)


def weight_shardings(weights: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A NamedSharding for each declaration of a tree; an axis that its mesh axis does not divide is kept whole."""

    def sharding(w: Weight) -> NamedSharding:
        axes = [MESH_AXES[a] for a in w.axes]
        return NamedSharding(
            mesh, P(*(a if a and n % mesh.shape[a] == 0 else None for a, n in zip(axes, w.shape, strict=True)))
        )

    return jax.tree.map(sharding, weights, is_leaf=is_weight)
