"""The tensors of Hugging Face folders: safetensors, in one file or in shards, under transformers' names."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from pods_jax.errors import UserError
from pods_jax.fields import OBJECT, TEXT, field, one_line, shown
from pods_jax.io import read_json
from pods_jax.models.config_json import CONFIG, read_config
from pods_jax.models.tensors import DTYPES, Checkpoint, Stored

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = "model-{}-of-{}.safetensors"
EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
OLD_ROPE_BUFFER = "rotary_emb.inv_freq"  # Llama files of 2023 hold it, though the config determines it

LAYER_NAMES = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "o": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
NAMES = {"embed": EMBED, "final_norm": "model.norm.weight", "lm_head": HEAD} | {
    ours: f"model.layers.{{}}.{theirs}" for ours, theirs in LAYER_NAMES.items()
}


def open_folder(folder: Path) -> Checkpoint:
    """A folder's config and tensors, of which it reads the headers only.

    Raises:
      UserError: a file is missing or unreadable, or the config is not supported.
    """
    config = read_config(folder / CONFIG)
    stored = {name: s for name, s in open_files(tensor_files(folder)).items() if not name.endswith(OLD_ROPE_BUFFER)}
    if config.tie_word_embeddings and stored.keys() >= {HEAD, EMBED}:
        head = stored.pop(HEAD)
        if not np.array_equal(head.read(), stored[EMBED].read()):
            raise UserError(f"{folder}: tie_word_embeddings is true, but '{HEAD}' differs from '{EMBED}'")
    return Checkpoint(folder, config, NAMES, stored)


def open_files(files: Sequence[Path]) -> dict[str, Stored]:
    """All tensors in safetensors files, by name.

    Raises:
      UserError: a file is missing or unreadable, two files have a tensor of the same name, or a tensor is not of a
        plain floating-point type.
    """
    stored: dict[str, Stored] = {}
    for file in files:
        tensors = _open_file(file)
        for name in tensors.keys():  # noqa: SIM118 - `tensors` is no mapping
            if name in stored:
                raise UserError(f"{file}: tensor {shown(name)} is in another file too")
            stored[name] = _stored(file, tensors, name)
    return stored


def _stored(file: Path, tensors: Any, name: str) -> Stored:
    header = tensors.get_slice(name)
    dtype = header.get_dtype()
    if dtype not in DTYPES:
        raise UserError(f"{file}: tensor {shown(name)} is stored as {dtype}: not supported, only {', '.join(DTYPES)}")
    return Stored(
        shape=tuple(header.get_shape()),
        dtype=DTYPES[dtype],
        read=lambda: _open_file(file).get_tensor(name),  # a mapping of its own, whose pages are given back with it
        row=lambda row: header[row : row + 1],
    )


def tensor_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder.

    Raises:
      UserError: there are none, or the index of shards is damaged or names files outside of the folder.
    """
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if not (folder / INDEX).exists():
        raise UserError(f"{folder}: neither {WEIGHTS} nor {INDEX}")
    weight_map = field(read_json(folder / INDEX), "weight_map", OBJECT, folder / INDEX)
    if not weight_map:
        raise UserError(f"{folder / INDEX}: weight_map is empty")
    for name in weight_map:
        _check_file_name(field(weight_map, name, TEXT, f"{folder / INDEX}: weight_map"), folder / INDEX)
    return [folder / name for name in sorted(set(weight_map.values()))]


def _check_file_name(name: str, index: Path) -> None:
    if name in ("", "..") or name != PurePath(name).name or "\\" in name or "\0" in name:
        raise UserError(f"{index}: weight_map names {shown(name)}, which is no file of its folder")


def _open_file(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error
    except SafetensorError as error:
        raise UserError(f"{path}: not a whole safetensors file: {one_line(error)}") from error
