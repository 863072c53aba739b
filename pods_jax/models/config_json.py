"""Reading and writing the config.json of a Hugging Face folder, as transformers 4 and 5 do."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from pods_jax.fields import (
    END_IDS,
    FLAG,
    OBJECT,
    SIZE,
    TEXT,
    Rule,
    check_fields,
    check_only,
    field,
    list_of,
    real,
    shown,
    whole,
    without_nulls,
)  # fmt: skip
from pods_jax.io import read_json
from pods_jax.models.decoder import ModelConfig, RopeScaling
from pods_jax.models.families import FAMILIES, Family
from pods_jax.registry import nearest

CONFIG = "config.json"

SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "max_position_embeddings",
)  # fmt: skip
FIELD_RULES: dict[str, Rule] = dict.fromkeys(SIZES, SIZE) | {
    "model_type": TEXT,
    "num_key_value_heads": SIZE,
    "head_dim": SIZE,
    "rms_norm_eps": real(0, 1),
    "rope_theta": real(1, 1e12),
    "rope_scaling": OBJECT,
    "rope_parameters": OBJECT,
    "tie_word_embeddings": FLAG,
    "use_sliding_window": FLAG,
    "sliding_window": whole(0),
    "max_window_layers": whole(0),
    "layer_types": list_of(TEXT),
    "eos_token_id": END_IDS,
    "bos_token_id": END_IDS,
    "pad_token_id": whole(-1),  # Llama 1's files say -1 for none
}
"""The fields of config.json that are read, each with its rule; null means absent."""

ROPE_RULES: dict[str, Rule] = {
    "rope_type": TEXT,
    "type": TEXT,
    "rope_theta": FIELD_RULES["rope_theta"],
    "partial_rotary_factor": real(0, 2),
    "factor": real(0, 1e6),
    "low_freq_factor": real(0, 1e6),
    "high_freq_factor": real(0, 1e6),
    "original_max_position_embeddings": SIZE,
}
"""The same for rope_scaling, which transformers 5 calls rope_parameters."""

ONLY = {
    "hidden_act": "silu",
    "attention_dropout": 0,
    "partial_rotary_factor": 1,
    "quantization_config": None,
    "auto_map": None,  # the folder's own Python, which is never run
}
"""Fields like those of `Family.only`, for every family."""


def read_config(path: Path) -> ModelConfig:
    """The ModelConfig of a config.json.

    Raises:
      UserError: a field is missing, has a wrong type or range, or asks for a computation that the decoder lacks.
    """
    written = read_json(path)
    raw = without_nulls(written)
    check_fields(raw, FIELD_RULES, path)
    family = _family(raw, path)
    check_only(raw, ONLY | family.only, path)
    raw |= {name: value for name, value in family.defaults.items() if name not in written}
    sizes = {name: field(raw, name, SIZE, path) for name in SIZES}
    _check_windows(written, family, path)
    heads = sizes["num_attention_heads"]
    theta, scaling = _rope(raw, path)
    config = ModelConfig(
        **sizes,
        num_key_value_heads=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim", sizes["hidden_size"] // heads),
        rms_norm_eps=float(field(raw, "rms_norm_eps", FIELD_RULES["rms_norm_eps"], path)),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=raw.get("tie_word_embeddings", False),
        **family.traits,
    )
    check_shape(config, path)
    return config


def check_shape(config: ModelConfig, place: Path) -> None:
    """Raises a UserError for sizes that do not fit each other."""
    heads = config.num_attention_heads
    groups = config.num_key_value_heads
    size = config.head_dim
    if heads % groups:
        raise UserError(f"{place}: num_attention_heads = {heads} is no multiple of num_key_value_heads = {groups}")
    if size < 2 or size % 2:
        raise UserError(f"{place}: head_dim = {size} must be even, since rotary positions turn pairs")


def config_json(config: ModelConfig, dtype: str, token_ids: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of a model, in the layout that transformers 4 and 5 both read.

    Args:
      dtype: precision of the stored weights.
      token_ids: bos_token_id, eos_token_id and pad_token_id of the tokenizer. An absent id is written as null, since
        transformers' defaults, 1 and 2, are those of one particular tokenizer.

    Raises:
      UserError: no model type of transformers computes this model.
    """
    fields = dataclasses.asdict(config)
    traits = {name: fields.pop(name) for name in ("attention_bias", "qk_norm")}
    scaling = fields.pop("rope_scaling")
    model_type = next((name for name, family in FAMILIES.items() if family.traits == traits), None)
    if model_type is None:
        raise UserError(f"no model type of transformers has {traits}")
    family = FAMILIES[model_type]
    return {
        "architectures": [family.architecture],
        "model_type": model_type,
        "torch_dtype": dtype,
        "hidden_act": ONLY["hidden_act"],
        **fields,
        **family.only,
        **({"use_sliding_window": False} if family.windows else {}),
        "rope_scaling": scaling and {"rope_type": "llama3", **scaling},
        **{name: token_ids.get(name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
    }


def _family(raw: Mapping[str, Any], path: Path) -> Family:
    model_type = field(raw, "model_type", TEXT, path)
    if model_type not in FAMILIES:
        raise UserError(f"{path}: model_type {shown(model_type)} is not supported: {nearest(model_type, FAMILIES)}")
    return FAMILIES[model_type]


def _check_windows(written: Mapping[str, Any], family: Family, path: Path) -> None:
    """Raises a UserError if any layer attends over a window. A null `sliding_window` differs from an absent one."""
    kinds = written.get("layer_types")
    if set(kinds or ()) - {"full_attention"}:
        raise UserError(f"{path}: layer_types other than 'full_attention' are not supported")
    if kinds is not None or not (family.windows and written.get("use_sliding_window")):
        return
    first = written.get("max_window_layers", 28)
    if written.get("sliding_window", 4096) is not None and (first is None or first < written["num_hidden_layers"]):
        raise UserError(
            f"{path}: use_sliding_window = True is not supported, unless max_window_layers = {first} leaves no layer"
        )


def _rope(raw: Mapping[str, Any], path: Path) -> tuple[float, RopeScaling | None]:
    rope = without_nulls(raw.get("rope_scaling") or raw.get("rope_parameters") or {})
    place = f"{path}: RoPE parameters"
    check_fields(rope, ROPE_RULES, place)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise UserError(f"{path}: rope_type {shown(kind)} is not supported, only 'default' and 'llama3'")
    if unknown := rope.keys() - ROPE_RULES.keys():
        raise UserError(f"{path}: RoPE parameter {shown(min(unknown))} is not supported")
    check_only(rope, {"partial_rotary_factor": 1}, path)
    theta = float(rope.get("rope_theta", raw.get("rope_theta", 10_000.0)))
    return theta, None if kind == "default" else _llama3(rope, place)


def _llama3(rope: Mapping[str, Any], place: str) -> RopeScaling:
    names = [f.name for f in dataclasses.fields(RopeScaling)]
    *factors, length = (field(rope, name, ROPE_RULES[name], place) for name in names)
    scaling = RopeScaling(*map(float, factors), length)
    if not scaling.low_freq_factor < scaling.high_freq_factor:
        raise UserError(f"{place}: low_freq_factor must be below high_freq_factor")
    return scaling
