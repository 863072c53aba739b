"""Writing Hugging Face folders, whole or not at all: config.json, and safetensors in shards."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from pods_jax.models import hf
from pods_jax.models.config_json import CONFIG, config_json
from pods_jax.models.decoder import ModelConfig, Params, is_weight, model_weights
from pods_jax.models.tensors import named_weights, swap_layout
from pods_jax.parallel.hosts import from_main, is_main, to_host

MAX_SHARD_BYTES = 5 * 10**9
PARTIAL = ".partial-"


@runtime_checkable
class SavesFiles(Protocol):
    """A tokenizer as this file sees it.

    Attributes:
      token_ids: its entries of config.json: bos_token_id, eos_token_id (one or several), pad_token_id; None: none.
    """

    token_ids: Mapping[str, Any]

    def save(self, folder: Path) -> None:
        """Writes the files from which the tokenizer can be loaded again."""
        ...


class StoredTensor(NamedTuple):
    """A tensor of a Hugging Face folder, and our weight (or the layer `index` of our weight) that it holds."""

    stored: str
    name: str
    index: int | None
    nbytes: int


def write_folder(
    folder: Path,
    config: ModelConfig,
    params: Params,
    tokenizer: SavesFiles | None = None,
    dtype: str | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Writes weights, tokenizer and config.json; the host holds one shard at a time.

    All files are first written beside their place. Then an old config.json is removed, the files are moved in, and the
    new config.json comes last: a folder that has one is complete. Older weights are replaced, other files are kept.
    If there are several processes, all must call it, as each holds a part of the weights; the main one writes.
    dtype: precision of the written weights; None: their own.

    Raises:
      UserError: no model type of transformers computes this model.
      ValueError: `params` are not this model's.
    """
    dtype = dtype or str(params["embed"].dtype)
    fields = config_json(config, dtype, {} if tokenizer is None else tokenizer.token_ids)
    text = json.dumps(fields, indent=2) + "\n"
    declared = jax.tree.map(lambda w: w.shape, model_weights(config), is_leaf=is_weight)
    if jax.tree.map(np.shape, params) != declared:
        raise ValueError("params do not have the names and shapes that the model's config declares")
    shards = plan_shards(list(_stored_tensors(config, params, jnp.dtype(dtype).itemsize)), max_shard_bytes)
    if is_main():
        _write(folder, shards, params, dtype, tokenizer, text)
    else:
        for shard in shards:
            _to_host(shard, params, dtype)
    from_main(None)  # the others wait until all is written


def _write(
    folder: Path, shards: list[list[StoredTensor]], params: Params, dtype: str, tokenizer: SavesFiles | None, text: str
) -> None:
    """Writes all files, in the order of `write_folder`. text: the contents of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for left_by_a_kill in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(left_by_a_kill)
    with tempfile.TemporaryDirectory(dir=folder, prefix=PARTIAL) as scratch:
        _write_tensors(Path(scratch), shards, params, dtype)
        if tokenizer is not None:
            tokenizer.save(Path(scratch))
        (Path(scratch) / CONFIG).write_text(text, encoding="utf-8")
        _move_in(Path(scratch), folder)


def _move_in(scratch: Path, folder: Path) -> None:
    (folder / CONFIG).unlink(missing_ok=True)
    for pattern in (hf.WEIGHTS, hf.INDEX, hf.SHARD.format("*", "*")):
        for stale in folder.glob(pattern):
            stale.unlink()
    for file in sorted(scratch.iterdir(), key=lambda file: file.name == CONFIG):
        os.replace(file, folder / file.name)


def _write_tensors(folder: Path, shards: list[list[StoredTensor]], params: Params, dtype: str) -> None:
    if len(shards) == 1:
        return _write_shard(folder / hf.WEIGHTS, shards[0], params, dtype)
    weight_map = {}
    for i, shard in enumerate(shards, start=1):
        file = hf.SHARD.format(f"{i:05d}", f"{len(shards):05d}")
        _write_shard(folder / file, shard, params, dtype)
        weight_map |= {tensor.stored: file for tensor in shard}
    index = {"metadata": {"total_size": sum(t.nbytes for shard in shards for t in shard)}, "weight_map": weight_map}
    (folder / hf.INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def plan_shards(tensors: list[StoredTensor], max_bytes: int) -> list[list[StoredTensor]]:
    """The tensors of each shard: consecutive ones, up to `max_bytes`. A larger tensor gets a shard of its own."""
    shards: list[list[StoredTensor]] = []
    room = 0
    for tensor in tensors:
        if not shards or tensor.nbytes > room:
            shards.append([])
            room = max_bytes
        shards[-1].append(tensor)
        room -= tensor.nbytes
    return shards


def _stored_tensors(config: ModelConfig, params: Params, itemsize: int) -> Iterator[StoredTensor]:
    """All tensors, layer by layer, so that a shard holds neighbouring layers."""
    weights = dict(named_weights(config))
    values = _flat(params)
    layered = [name for name, weight in weights.items() if weight.axes[0] == "layers"]
    for name in sorted(weights.keys() - set(layered)):
        yield StoredTensor(hf.NAMES[name], name, None, values[name].size * itemsize)
    for i in range(config.num_hidden_layers):
        for name in layered:
            nbytes = values[name].size // config.num_hidden_layers * itemsize
            yield StoredTensor(hf.NAMES[name].format(i), name, i, nbytes)


def _flat(params: Params) -> dict[str, Any]:
    """All weights by name, those of the layers too."""
    return {**params, **params["layers"]}


def _write_shard(path: Path, shard: list[StoredTensor], params: Params, dtype: str) -> None:
    save_file(_to_host(shard, params, dtype), path, metadata={"format": "pt"})


def _to_host(shard: list[StoredTensor], params: Params, dtype: str) -> dict[str, np.ndarray]:
    """A shard's tensors, gathered from all devices, under their stored names and in their stored layout."""
    values = _flat(params)

    def stored(tensor: StoredTensor) -> np.ndarray:
        value = values[tensor.name] if tensor.index is None else values[tensor.name][tensor.index]
        return np.ascontiguousarray(swap_layout(tensor.name, np.asarray(to_host(value))).astype(jnp.dtype(dtype)))

    return {tensor.stored: stored(tensor) for tensor in shard}
