"""Writing Hugging Face folders, whole or not at all: config.json, and safetensors in shards, read off the devices."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from safetensors.numpy import save_file

from pods_jax.models import hf
from pods_jax.models.decoder import ModelConfig, Params, is_weight, model_weights
from pods_jax.models.tensors import named_weights, swap_layout

MAX_SHARD_BYTES = 5 * 10**9


@runtime_checkable
class SavesFiles(Protocol):
    """A tokenizer, as far as this file knows it."""

    def save(self, folder: Path) -> None:
        """Writes the files from which it can be loaded again."""
        ...


class StoredTensor(NamedTuple):
    """A tensor of a Hugging Face folder, and the weight of ours (or the layer of it, `index`) that it holds."""

    stored: str
    name: str
    index: int | None
    nbytes: int


def write_folder(
    folder: Path,
    config: ModelConfig,
    params: Params,
    tokenizer: SavesFiles | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Writes weights, tokenizer and config.json; the host holds one shard at a time.

    Everything is written beside its place first. Then config.json is removed, the files are renamed, and config.json
    comes last: a folder that has one is complete. Weights that were there are replaced, other files left alone.

    Raises:
      UserError: no model type of transformers computes this model.
      ValueError: `params` are not this model's.
    """
    text = json.dumps(hf.config_json(config, str(params["embed"].dtype)), indent=2) + "\n"
    declared = jax.tree.map(lambda w: w.shape, model_weights(config), is_leaf=is_weight)
    if jax.tree.map(np.shape, params) != declared:
        raise ValueError("params do not have the names and shapes that the model's config declares")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as scratch:
        _write_tensors(Path(scratch), config, params, max_shard_bytes)
        if tokenizer is not None:
            tokenizer.save(Path(scratch))
        (Path(scratch) / hf.CONFIG).write_text(text, encoding="utf-8")
        _move_in(Path(scratch), folder)


def _move_in(scratch: Path, folder: Path) -> None:
    (folder / hf.CONFIG).unlink(missing_ok=True)
    for pattern in (hf.WEIGHTS, hf.INDEX, hf.SHARD.format("*", "*")):
        for stale in folder.glob(pattern):
            stale.unlink()
    for file in sorted(scratch.iterdir(), key=lambda file: file.name == hf.CONFIG):
        os.replace(file, folder / file.name)


def _write_tensors(folder: Path, config: ModelConfig, params: Params, max_shard_bytes: int) -> None:
    values: dict[str, Any] = {**params, **params["layers"]}
    shards = plan_shards(list(_stored_tensors(config, values)), max_shard_bytes)
    if len(shards) == 1:
        return _write_shard(folder / hf.WEIGHTS, shards[0], values)
    weight_map = {}
    for i, shard in enumerate(shards, start=1):
        file = hf.SHARD.format(f"{i:05d}", f"{len(shards):05d}")
        _write_shard(folder / file, shard, values)
        weight_map |= {tensor.stored: file for tensor in shard}
    index = {"metadata": {"total_size": sum(t.nbytes for shard in shards for t in shard)}, "weight_map": weight_map}
    (folder / hf.INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def plan_shards(tensors: list[StoredTensor], max_bytes: int) -> list[list[StoredTensor]]:
    """Consecutive tensors, as many to a shard as fit; one that is larger than `max_bytes` has a shard of its own."""
    shards, room = [], 0
    for tensor in tensors:
        if not shards or tensor.nbytes > room:
            shards.append([])
            room = max_bytes
        shards[-1].append(tensor)
        room -= tensor.nbytes
    return shards


def _stored_tensors(config: ModelConfig, values: dict[str, Any]) -> Iterator[StoredTensor]:
    """Layer by layer, so that a shard holds neighbours."""
    weights = dict(named_weights(config))
    layered = [name for name, weight in weights.items() if weight.axes[0] == "layers"]
    for name in sorted(weights.keys() - set(layered)):
        yield StoredTensor(hf.NAMES[name], name, None, values[name].nbytes)
    for i in range(config.num_hidden_layers):
        for name in layered:
            nbytes = values[name].nbytes // config.num_hidden_layers
            yield StoredTensor(hf.NAMES[name].format(i), name, i, nbytes)


def _write_shard(path: Path, shard: list[StoredTensor], values: dict[str, Any]) -> None:
    def to_host(tensor: StoredTensor) -> np.ndarray:
        value = values[tensor.name] if tensor.index is None else values[tensor.name][tensor.index]
        return np.ascontiguousarray(swap_layout(tensor.name, np.asarray(value)))

    save_file({tensor.stored: to_host(tensor) for tensor in shard}, path, metadata={"format": "pt"})
