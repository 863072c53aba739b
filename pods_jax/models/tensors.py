"""Stored models of any file format: checking their tensors against the config, and reading them as parameters."""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import DictKey

from pods_jax.errors import UserError
from pods_jax.fields import shown
from pods_jax.models.decoder import ModelConfig, Params, Weight, is_weight, model_weights

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
"""The plain floating-point types, by their names in safetensors and in GGUF files."""


class Stored(NamedTuple):
    """A tensor of a file that is not read yet.

    Attributes:
      shape: its shape in the file.
      dtype: NumPy's name of its type if there is one, else the format's name.
      read: function that reads the array.
      row: function that reads one row, as the bytes or numbers in the file.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]
    row: Callable[[int], np.ndarray]


class Checkpoint(NamedTuple):
    """A model's tensors on disk. Matrices other than the embedding are stored as [out, in]; ours are [in, out].

    Attributes:
      path: the file or folder, for messages.
      config: the model's config.
      names: the stored name of each of our weights, with "{}" in place of the layer's index.
      stored: all tensors by their stored names; each must belong to a weight.
    """

    path: Path
    config: ModelConfig
    names: Mapping[str, str]
    stored: Mapping[str, Stored]


def swap_layout(name: str, array: np.ndarray) -> np.ndarray:
    """The array of the weight `name`, turned from the stored layout into ours, or back."""
    return array if name == "embed" else array.T


def stored_names(names: Mapping[str, str], name: str, weight: Weight) -> Iterator[str]:
    """The names of the tensors that make up one of our weights: a single one, or one for each layer."""
    layers = weight.shape[0] if weight.axes[0] == "layers" else 1
    return (names[name].format(i) for i in range(layers))


def named_weights(config: ModelConfig) -> Iterator[tuple[str, Weight]]:
    """The names and declarations of all our weights."""
    for path, weight in jax.tree_util.tree_leaves_with_path(model_weights(config), is_leaf=is_weight):
        yield path[-1].key, weight


def read_params(checkpoint: Checkpoint, dtype: str, shardings: Any = None, stacked: bool = True) -> Params:
    """The checkpoint's weights in `dtype`, placed by the tree `shardings` (None: on the default device).

    At any time the host holds at most one stored tensor besides the placed weights. stacked: False: the layers are a
    list, as the sampler has them.

    Raises:
      UserError: a tensor is missing, left over, or of the wrong shape.
    """
    check_tensors(checkpoint)
    weights = model_weights(checkpoint.config)
    shardings = jax.tree.map(lambda _: None, weights, is_leaf=is_weight) if shardings is None else shardings

    def place(path, weight, sharding):
        return _place(checkpoint, path[-1].key, weight, dtype, sharding)

    if stacked:
        return jax.tree_util.tree_map_with_path(place, weights, shardings, is_leaf=is_weight)
    apart = {name: place((DictKey(name),), weights[name], shardings[name]) for name in weights.keys() - {"layers"}}
    return {**apart, "layers": _list_of_layers(checkpoint, dtype, shardings["layers"])}


def _list_of_layers(checkpoint: Checkpoint, dtype: str, shardings: Any) -> list[Params]:
    """The weights of each layer. shardings: of stacks."""
    return [
        {
            name: _put(_read(checkpoint, name, checkpoint.names[name].format(i), dtype), _of_one_layer(sharding))
            for name, sharding in shardings.items()
        }
        for i in range(checkpoint.config.num_hidden_layers)
    ]


def check_tensors(checkpoint: Checkpoint) -> None:
    """Compares the stored names and shapes with those that the config asks for.

    The cost grows with the files, not with the sizes that the config claims: a tensor that is not stored costs nothing.

    Raises:
      UserError: a tensor is missing, left over, or of the wrong shape.
    """
    path = checkpoint.path
    stored = checkpoint.stored
    expected = set()
    for name, weight in named_weights(checkpoint.config):
        shape = _stored_shape(name, weight)
        for tensor in stored_names(checkpoint.names, name, weight):
            if tensor not in stored:
                raise UserError(f"{path} lacks tensor '{tensor}'{_counts(checkpoint)}")
            if stored[tensor].shape != shape:
                got = list(stored[tensor].shape)
                raise UserError(f"{path}: tensor '{tensor}' has shape {got}, the config asks for {list(shape)}")
            expected.add(tensor)
    if unexpected := stored.keys() - expected:
        raise UserError(f"{path} has unexpected tensor {shown(min(unexpected))}{_counts(checkpoint)}")


def _stored_shape(name: str, weight: Weight) -> tuple[int, ...]:
    """The shape of one stored tensor of a weight."""
    shape = weight.shape[1:] if weight.axes[0] == "layers" else weight.shape
    return shape if name == "embed" else shape[::-1]


def _counts(checkpoint: Checkpoint) -> str:
    layers = checkpoint.config.num_hidden_layers
    wanted = sum(layers if weight.axes[0] == "layers" else 1 for _, weight in named_weights(checkpoint.config))
    return f" (a model of {layers} layers has {wanted} tensors, here are {len(checkpoint.stored)})"


def _place(checkpoint: Checkpoint, name: str, weight: Weight, dtype: str, sharding: Any) -> jax.Array:
    """One of our weights on its devices; a stacked weight is filled there, layer by layer."""
    stored = stored_names(checkpoint.names, name, weight)
    if weight.axes[0] != "layers":
        return _put(_read(checkpoint, name, next(stored), dtype), sharding)
    stack = jnp.zeros(weight.shape, dtype, device=sharding)
    one = _of_one_layer(sharding)
    for i, layer in enumerate(stored):
        stack = _set_layer(stack, _put(_read(checkpoint, name, layer, dtype), one), i)
    return stack


def _of_one_layer(sharding: NamedSharding | None) -> NamedSharding | None:
    """The sharding of a layer's weight, from that of the stack."""
    return None if sharding is None else NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))


def _put(array: np.ndarray, sharding: NamedSharding | None) -> jax.Array:
    """Places an array that every process has; each device gets only its own part."""
    if sharding is None:
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


@functools.partial(jax.jit, donate_argnums=0)
def _set_layer(stack: jax.Array, layer: jax.Array, i: jax.Array) -> jax.Array:
    return stack.at[i].set(layer)


def _read(checkpoint: Checkpoint, name: str, stored: str, dtype: str) -> np.ndarray:
    return swap_layout(name, checkpoint.stored[stored].read()).astype(jnp.dtype(dtype))


# ---------------------------------------------------------------- summaries of stored weights


def stored_dtype(checkpoint: Checkpoint) -> str | None:
    """The precision of the stored matrices; None if they are quantised."""
    dtype = checkpoint.stored[checkpoint.names["q"].format(0)].dtype
    return "float32" if dtype == "float64" else dtype if dtype in DTYPES.values() else None


def fingerprint(checkpoint: Checkpoint) -> str:
    """A hash of the model's shape and of a few rows of every tensor, which tells different weights apart.

    It depends on the tensors, not on the files: a copy elsewhere, or in other shards, has the same hash. It reads a few
    megabytes, whatever the model's size. Training changes all rows of a matrix, so the hash changes; an edit of single
    rows of an embedding may not change it.
    """
    digest = hashlib.sha256(repr(checkpoint.config).encode())
    for name in sorted(checkpoint.stored):
        stored = checkpoint.stored[name]
        digest.update(f"{name} {stored.shape} {stored.dtype}".encode())
        length = stored.shape[0]
        for row in sorted({length * i // ROWS for i in range(ROWS)}) if length else ():
            digest.update(np.ascontiguousarray(stored.row(row)).tobytes())
    return digest.hexdigest()


ROWS = 8
"""Number of rows of a tensor that are hashed, at equal distances."""
