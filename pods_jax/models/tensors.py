"""A stored model, whatever its file format, and how its tensors become a parameter tree."""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pods_jax.errors import UserError
from pods_jax.models.decoder import ModelConfig, Params, Weight, is_weight, model_weights


class Checkpoint(NamedTuple):
    """Tensors on disk. Matrices but the embedding are stored [out, in]; ours are [in, out].

    Attributes:
      path: the file or folder, for messages.
      config: the model that the tensors are of.
      names: our name of a weight -> its stored name, with "{}" for the layer's index.
      stored: the stored names of all tensors that must find a place.
      read: stored name -> array.
    """

    path: Path
    config: ModelConfig
    names: Mapping[str, str]
    stored: frozenset[str]
    read: Callable[[str], np.ndarray]


def swap_layout(name: str, array: np.ndarray) -> np.ndarray:
    """From the stored layout of the weight `name` to ours, and back."""
    return array if name == "embed" else array.T


def stored_names(names: Mapping[str, str], name: str, weight: Weight) -> list[str]:
    """The tensors that make up one of our weights: one, or one a layer."""
    layers = weight.shape[0] if weight.axes[0] == "layers" else 1
    return [names[name].format(i) for i in range(layers)]


def named_weights(config: ModelConfig) -> Iterator[tuple[str, Weight]]:
    """Our names and declarations of all weights."""
    for path, weight in jax.tree_util.tree_leaves_with_path(model_weights(config), is_leaf=is_weight):
        yield path[-1].key, weight


def read_params(checkpoint: Checkpoint, dtype: str, shardings: Any = None) -> Params:
    """The checkpoint's weights in `dtype`, each placed by the tree `shardings` (None: on the default device).

    At any time the host holds one stored tensor beyond what is placed.

    Raises:
      UserError: a tensor is missing, left over, or of the wrong shape.
    """
    _check_names(checkpoint)
    weights = model_weights(checkpoint.config)
    shardings = jax.tree.map(lambda _: None, weights, is_leaf=is_weight) if shardings is None else shardings

    def place(path, weight, sharding):
        return _place(checkpoint, path[-1].key, weight, dtype, sharding)

    return jax.tree_util.tree_map_with_path(place, weights, shardings, is_leaf=is_weight)


def _check_names(checkpoint: Checkpoint) -> None:
    weights = named_weights(checkpoint.config)
    expected = {stored for name, weight in weights for stored in stored_names(checkpoint.names, name, weight)}
    for problem, names in (("lacks", expected - checkpoint.stored), ("has unexpected", checkpoint.stored - expected)):
        if names:
            first, more = min(names), f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UserError(f"{checkpoint.path} {problem} tensor '{first}'{more}")


def _place(checkpoint: Checkpoint, name: str, weight: Weight, dtype: str, sharding: Any) -> jax.Array:
    """One of our weights on its devices; a stacked one grows there, layer by layer."""
    stored = stored_names(checkpoint.names, name, weight)
    if weight.axes[0] != "layers":
        return _put(_read(checkpoint, name, stored[0], weight.shape, dtype), sharding)
    stack = jnp.zeros(weight.shape, dtype, device=sharding)
    one = None if sharding is None else NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
    for i, layer in enumerate(stored):
        stack = _set_layer(stack, _put(_read(checkpoint, name, layer, weight.shape[1:], dtype), one), i)
    return stack


def _put(array: np.ndarray, sharding: NamedSharding | None) -> jax.Array:
    """An array that every process has, each device given its own part alone."""
    if sharding is None:
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


@functools.partial(jax.jit, donate_argnums=0)
def _set_layer(stack: jax.Array, layer: jax.Array, i: jax.Array) -> jax.Array:
    return stack.at[i].set(layer)


def _read(checkpoint: Checkpoint, name: str, stored: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    array = swap_layout(name, checkpoint.read(stored))
    if array.shape != shape:
        got, want = (list(swap_layout(name, np.empty(s, bool)).shape) for s in (array.shape, shape))
        raise UserError(f"{checkpoint.path}: tensor '{stored}' has shape {got}, the config asks for {want}")
    return array.astype(jnp.dtype(dtype))
