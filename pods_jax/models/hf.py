"""Hugging Face folders: config.json and safetensors, read and written under transformers' names."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from pods_jax.errors import UserError
from pods_jax.io import read_json
from pods_jax.models.decoder import ModelConfig, RopeScaling
from pods_jax.models.families import FAMILIES, Family
from pods_jax.models.tensors import Checkpoint
from pods_jax.registry import nearest

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
DTYPES = ("F32", "BF16", "F16", "F64")  # as safetensors calls them
SHARD = "model-{}-of-{}.safetensors"
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
OLD_ROPE_BUFFER = "rotary_emb.inv_freq"  # Llama files of 2023 hold it; the config implies it

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


ONLY = {"hidden_act": "silu", "attention_dropout": 0, "partial_rotary_factor": 1, "quantization_config": None}
"""As `Family.only`, for every family."""

SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
LLAMA3_FIELDS = tuple(field.name for field in dataclasses.fields(RopeScaling))
ROPE_FIELDS = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *LLAMA3_FIELDS}


# ---------------------------------------------------------------- config.json


def read_config(path: Path) -> ModelConfig:
    """The ModelConfig of a config.json, as transformers 4 or 5 writes it.

    Raises:
      UserError: a field is missing, or asks for a computation that the decoder does not have.
    """
    raw = {key: value for key, value in read_json(path).items() if value is not None}
    family = _family(raw, path)
    check_only(raw, ONLY | family.only, path)
    raw = {**family.defaults, **raw}
    if set(raw.get("layer_types", [])) - {"full_attention"}:
        raise UserError(f"{path}: layer_types other than 'full_attention' are not supported")
    sizes = {name: _field(raw, name, path) for name in (*SIZES, "max_position_embeddings")}
    heads = sizes["num_attention_heads"]
    theta, scaling = _rope(raw, path)
    return ModelConfig(
        **sizes,
        num_key_value_heads=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim", sizes["hidden_size"] // heads),
        rms_norm_eps=float(_field(raw, "rms_norm_eps", path)),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=raw.get("tie_word_embeddings", False),
        **family.traits,
    )


def config_json(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """The config.json of a model, in the layout that transformers 4 and 5 both read.

    Raises:
      UserError: no model type of transformers computes this model.
    """
    fields = dataclasses.asdict(config)
    traits = {name: fields.pop(name) for name in ("attention_bias", "qk_norm")}
    scaling = fields.pop("rope_scaling")
    model_type = next((name for name, family in FAMILIES.items() if family.traits == traits), None)
    if model_type is None:
        raise UserError(f"no model type of transformers has {traits}")
    return {
        "architectures": [FAMILIES[model_type].architecture],
        "model_type": model_type,
        "torch_dtype": dtype,
        "hidden_act": ONLY["hidden_act"],
        **fields,
        **FAMILIES[model_type].only,
        "rope_scaling": scaling and {"rope_type": "llama3", **scaling},
        "bos_token_id": None,  # transformers' defaults, 1 and 2, are those of one tokenizer
        "eos_token_id": None,
    }


def _field(raw: Mapping[str, Any], name: str, path: Path) -> Any:
    if name not in raw:
        raise UserError(f"{path}: no '{name}'")
    return raw[name]


def _family(raw: Mapping[str, Any], path: Path) -> Family:
    model_type = _field(raw, "model_type", path)
    if model_type not in FAMILIES:
        raise UserError(f"{path}: model_type '{model_type}' is not supported: {nearest(model_type, FAMILIES)}")
    return FAMILIES[model_type]


def check_only(raw: Mapping[str, Any], only: Mapping[str, Any], path: Path) -> None:
    """UserError for a field of `raw` that is there with another value than the one that `only` has for it."""
    for name, value in only.items():
        if raw.get(name, value) != value:
            raise UserError(f"{path}: {name} = {raw[name]!r} is not supported, only {value!r}")


def _rope(raw: Mapping[str, Any], path: Path) -> tuple[float, RopeScaling | None]:
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise UserError(f"{path}: rope_type '{kind}' is not supported, only 'default' and 'llama3'")
    if unknown := set(rope) - ROPE_FIELDS:
        raise UserError(f"{path}: RoPE parameter '{min(unknown)}' is not supported")
    check_only(rope, {"partial_rotary_factor": 1}, path)
    theta = float(rope.get("rope_theta", raw.get("rope_theta", 10_000.0)))
    if kind == "default":
        return theta, None
    *factors, length = (_field(rope, name, path) for name in LLAMA3_FIELDS)
    return theta, RopeScaling(*map(float, factors), length)


# ---------------------------------------------------------------- safetensors


def open_folder(folder: Path) -> Checkpoint:
    """A folder's config and tensors; nothing but headers is read yet.

    Raises:
      UserError: a file is missing or unreadable, or the config is not supported.
    """
    config = read_config(folder / CONFIG)
    names, read = open_files(_tensor_files(folder))
    stored = {name for name in names if not name.endswith(OLD_ROPE_BUFFER)}
    if config.tie_word_embeddings and stored >= {HEAD, EMBED}:
        if not np.array_equal(read(HEAD), read(EMBED)):
            raise UserError(f"{folder}: tie_word_embeddings is true, but '{HEAD}' differs from '{EMBED}'")
        stored.remove(HEAD)
    return Checkpoint(folder, config, NAMES, frozenset(stored), read)


def open_files(files: Sequence[Path]) -> tuple[frozenset[str], Callable[[str], np.ndarray]]:
    """The names of all tensors in safetensors files, and a function that reads one.

    Raises:
      UserError: a file is missing or unreadable; when reading, a tensor is not of a plain floating-point type.
    """
    where = {}
    for file, tensors in zip(files, map(_open_file, files), strict=True):
        where |= {name: (file, tensors) for name in tensors.keys()}  # noqa: SIM118 - it is no mapping

    def read(name: str) -> np.ndarray:
        file, tensors = where[name]
        if (dtype := tensors.get_slice(name).get_dtype()) not in DTYPES:
            raise UserError(f"{file}: tensor '{name}' is stored as {dtype}: not supported, only {', '.join(DTYPES)}")
        return tensors.get_tensor(name)

    return frozenset(where), read


def _tensor_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        weight_map = _field(read_json(folder / INDEX), "weight_map", folder / INDEX)
        return [folder / name for name in sorted(set(weight_map.values()))]
    raise UserError(f"{folder}: neither {WEIGHTS} nor {INDEX}")


def _open_file(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise UserError(f"{path}: not a whole safetensors file: {error}") from error
