"""Several processes that run one program over the devices of one mesh; with one process nothing here communicates."""

import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def is_main() -> bool:
    """Whether this is the process that writes files and talks to the user."""
    return jax.process_index() == 0


def place(tree: Any, shardings: Any) -> Any:
    """Arrays laid out over the devices by `shardings`: one for all, or a tree of them.

    Host arrays must be the same on every process, which feeds its own devices' parts. Arrays that several processes
    hold together stay as they are where they have that layout, and are laid out anew on the devices where not.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, shardings)
    if isinstance(shardings, jax.sharding.Sharding):
        shardings = jax.tree.map(lambda _: shardings, tree)
    return jax.tree.map(_laid_out, tree, shardings)


def _laid_out(x: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return x if x.sharding.is_equivalent_to(sharding, x.ndim) else jax.device_put(x, sharding)
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def to_host(tree: Any) -> Any:
    """Arrays on the devices as whole host arrays, on every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def own_share(size: int) -> slice:
    """This process's share of `size` rows; over all processes, in order, every row once."""
    count = jax.process_count()
    index = jax.process_index()
    return slice(size * index // count, size * (index + 1) // count)


def exchange(rows: Sequence[Any]) -> list[Any]:
    """The JSON-able rows of all processes, in the processes' order. All must call it, from their main thread."""
    if jax.process_count() == 1:
        return list(rows)
    content = np.frombuffer(json.dumps(rows).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.array(len(content))).ravel()
    length = 1 << int(sizes.max()).bit_length()  # few lengths, as each is a program of its own
    padded = np.pad(content, (0, length - len(content)))
    parts = multihost_utils.process_allgather(padded).reshape(len(sizes), -1)
    return [row for part, size in zip(parts, sizes, strict=True) for row in json.loads(part[:size].tobytes())]


def from_main(value: Any) -> Any:
    """The main process's value, which must be JSON-able; what the others pass is not looked at."""
    return exchange([value if is_main() else None])[0]


def arrays_from_main(tree: Any) -> Any:
    """The main process's host arrays, on every process. All must call it, with arrays of equal shapes and dtypes."""
    if jax.process_count() == 1:
        return tree
    return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), multihost_utils.broadcast_one_to_all(tree), tree)
