"""A stored model of any file format, checked against its config, and its tensors as a parameter tree."""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pods_jax.errors import UserError
from pods_jax.fields import shown
from pods_jax.models.decoder import ModelConfig, Params, Weight, is_weight, model_weights

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
"""The plain floating-point types, by their names in safetensors and in GGUF files."""


class Stored(NamedTuple):
    """A tensor of a file, not read yet.

    Attributes:
      shape: as it is stored.
      dtype: NumPy's name of its type where it has one, else the format's name.
      read: gives its array.
      row: gives one of its rows as the bytes or numbers that are stored.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]
    row: Callable[[int], np.ndarray]


class Checkpoint(NamedTuple):
    """A model's tensors on disk. Matrices but the embedding are stored [out, in]; ours are [in, out].

    Attributes:
      path: the file or folder, for messages.
      config: the model that the tensors are of.
      names: our name of a weight -> its stored name, with "{}" for the layer's index.
      stored: all tensors that must find a place, by their stored names.
    """

    path: Path
    config: ModelConfig
    names: Mapping[str, str]
    stored: Mapping[str, Stored]


def swap_layout(name: str, array: np.ndarray) -> np.ndarray:
    """From the stored layout of the weight `name` to ours, and back."""
    return array if name == "embed" else array.T


def stored_names(names: Mapping[str, str], name: str, weight: Weight) -> Iterator[str]:
    """The tensors that make up one of our weights: one, or one a layer."""
    layers = weight.shape[0] if weight.axes[0] == "layers" else 1
    return (names[name].format(i) for i in range(layers))


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
    check_tensors(checkpoint)
    weights = model_weights(checkpoint.config)
    shardings = jax.tree.map(lambda _: None, weights, is_leaf=is_weight) if shardings is None else shardings

    def place(path, weight, sharding):
        return _place(checkpoint, path[-1].key, weight, dtype, sharding)

    return jax.tree_util.tree_map_with_path(place, weights, shardings, is_leaf=is_weight)


def check_tensors(checkpoint: Checkpoint) -> None:
    """Compares the names and shapes that the config asks for with those stored.

    It costs what the files hold, whatever sizes the config claims: nothing is made for a tensor that is not stored.

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
    """One of our weights on its devices; a stacked one grows there, layer by layer."""
    stored = stored_names(checkpoint.names, name, weight)
    if weight.axes[0] != "layers":
        return _put(_read(checkpoint, name, next(stored), dtype), sharding)
    stack = jnp.zeros(weight.shape, dtype, device=sharding)
    one = None if sharding is None else NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
    for i, layer in enumerate(stored):
        stack = _set_layer(stack, _put(_read(checkpoint, name, layer, dtype), one), i)
    return stack


def _put(array: np.ndarray, sharding: NamedSharding | None) -> jax.Array:
    """An array that every process has, each device given its own part only."""
    if sharding is None:
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


@functools.partial(jax.jit, donate_argnums=0)
def _set_layer(stack: jax.Array, layer: jax.Array, i: jax.Array) -> jax.Array:
    return stack.at[i].set(layer)


def _read(checkpoint: Checkpoint, name: str, stored: str, dtype: str) -> np.ndarray:
    return swap_layout(name, checkpoint.stored[stored].read()).astype(jnp.dtype(dtype))


# ---------------------------------------------------------------- what is on disk, in short


def stored_dtype(checkpoint: Checkpoint) -> str | None:
    """The precision of the model's own matrices; None where they are quantised."""
    dtype = checkpoint.stored[checkpoint.names["q"].format(0)].dtype
    return "float32" if dtype == "float64" else dtype if dtype in DTYPES.values() else None


def fingerprint(checkpoint: Checkpoint) -> str:
    """A hash of the model's shape and of a few rows of every tensor, to tell other weights from the same ones.

    It is of the tensors, not of the files: a copy elsewhere, or in other shards, has the same one. It reads some
    megabytes of a model of any size. Training changes all rows of a matrix, so it is seen; an edit of single rows of
    an embedding may not be.
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
"""Rows of a tensor, at equal distances, that are hashed."""
