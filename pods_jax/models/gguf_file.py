"""Models in GGUF files, quantised or not, as llama.cpp's converter writes them."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.errors import UserError
from pods_jax.fields import SIZE, TEXT, list_of, one_line, shown
from pods_jax.gguf_reader import GGUFFile
from pods_jax.models import config_json
from pods_jax.models.decoder import ModelConfig, RopeScaling, rope_frequencies
from pods_jax.models.families import FAMILIES, Family
from pods_jax.models.tensors import DTYPES, Checkpoint, Stored
from pods_jax.registry import nearest

LAYER_NAMES = {
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
}
NAMES = (
    {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "lm_head": "output.weight"}
    | {ours: f"blk.{{}}.{theirs}.weight" for ours, theirs in LAYER_NAMES.items()}
    | {f"{x}_bias": f"blk.{{}}.attn_{x}.bias" for x in "qkv"}
)
ROPE_FACTORS = "rope_freqs.weight"

FIELD_RULES = {
    "vocab_size": SIZE,
    "context_length": SIZE,
    "embedding_length": SIZE,
    "block_count": SIZE,
    "feed_forward_length": SIZE,
    "attention.head_count": SIZE,
    "attention.head_count_kv": SIZE,
    "attention.layer_norm_rms_epsilon": config_json.FIELD_RULES["rms_norm_eps"],
    "attention.key_length": SIZE,
    "attention.value_length": SIZE,
    "rope.freq_base": config_json.FIELD_RULES["rope_theta"],
    "rope.dimension_count": SIZE,
}
"""The keys of an architecture that are read, each with its rule."""

NEUTRAL = {"rope.scaling.type": "none", "expert_count": 0, "expert_used_count": 0}
"""Keys, each with the only value that the decoder computes."""


def open_gguf(path: Path) -> Checkpoint:
    """A GGUF file's config and tensors; a tensor is dequantised to float32 when it is read.

    Raises:
      UserError: the file is not GGUF, its family is unknown, or it asks for a computation that the decoder lacks.
    """
    file = GGUFFile(path)
    family = _family(file)
    config = read_config(file)
    rows = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}

    def stored(name: str) -> Stored:
        heads = rows.get(name.split(".")[-2]) if name.count(".") == 3 and family.gguf_interleaved else None

        def read() -> np.ndarray:
            array = _dequantize(file, name)
            return half_split(array, heads) if heads else array

        tensor = file.tensors[name]
        kind = tensor.kind.name
        return Stored(tensor.shape, DTYPES.get(kind, kind), read, lambda row: tensor.data[row : row + 1])

    return Checkpoint(path, config, NAMES, {name: stored(name) for name in file.tensors.keys() - {ROPE_FACTORS}})


def read_config(file: GGUFFile) -> ModelConfig:
    """The ModelConfig of a GGUF file."""
    family = _family(file)
    _check_keys(file)
    hidden = _number(file, "embedding_length")
    heads = _number(file, "attention.head_count")
    head_dim = _number(file, "attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if _number(file, name, head_dim) != head_dim:
            raise UserError(f"{file.path}: {name} differs from the head size, {head_dim}: not supported")
    config = ModelConfig(
        vocab_size=_number(file, "vocab_size", 0) or len(file.field("tokenizer.ggml.tokens", list_of(TEXT))),
        hidden_size=hidden,
        intermediate_size=_number(file, "feed_forward_length"),
        num_hidden_layers=_number(file, "block_count"),
        num_attention_heads=heads,
        num_key_value_heads=_number(file, "attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=_number(file, "attention.layer_norm_rms_epsilon"),
        rope_theta=_number(file, "rope.freq_base", 10_000.0),
        tie_word_embeddings=NAMES["lm_head"] not in file.tensors,
        max_position_embeddings=_number(file, "context_length"),
        **family.traits,
    )
    config_json.check_shape(config, file.path)
    return dataclasses.replace(config, rope_scaling=_rope_scaling(file, config))


def _family(file: GGUFFile) -> Family:
    name = file.field("general.architecture", TEXT)
    if name not in FAMILIES:
        raise UserError(f"{file.path}: general.architecture {shown(name)} is not supported: {nearest(name, FAMILIES)}")
    return FAMILIES[name]


def _number(file: GGUFFile, name: str, default: Any = None) -> Any:
    """The value of the architecture's key `name`. UserError if the key is absent and has no default."""
    key = f"{file['general.architecture']}.{name}"
    return file.field(key, FIELD_RULES[name]) if default is None else file.field(key, FIELD_RULES[name], default)


def _rope_scaling(file: GGUFFile, config: ModelConfig) -> RopeScaling | None:
    """Llama 3's scaling. GGUF files hold it as one divisor for each frequency, so it is recognised by its numbers."""
    if ROPE_FACTORS not in file.tensors:
        return None
    if file.tensors[ROPE_FACTORS].shape != (config.head_dim // 2,):
        raise UserError(f"{file.path}: '{ROPE_FACTORS}' holds no factor for each of {config.head_dim // 2} frequencies")
    factors = _dequantize(file, ROPE_FACTORS)
    scaling = RopeScaling(float(factors.max()), 1.0, 4.0, 8192)  # the last three are the same in 3.1, 3.2 and 3.3
    scaled = dataclasses.replace(config, rope_scaling=scaling)
    expected = np.asarray(rope_frequencies(config) / rope_frequencies(scaled))
    if not np.allclose(factors, expected, rtol=1e-3):
        raise UserError(f"{file.path}: the factors in '{ROPE_FACTORS}' are not those of Llama 3: not supported")
    return scaling


def half_split(array: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a query or key projection [heads * h, in], reordered from interleaved RoPE pairs to halves.

    It is the inverse of `permute` in llama.cpp's convert_hf_to_gguf.py. Interleaved pairs are (0, 1), (2, 3), ...
    """
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _check_keys(file: GGUFFile) -> None:
    prefix = file["general.architecture"] + "."
    for key in file:
        name = key.removeprefix(prefix)
        if key.startswith(prefix) and name not in FIELD_RULES and file[key] != NEUTRAL.get(name):
            raise UserError(f"{file.path}: {one_line(key)} = {shown(file[key])} is not supported")


def _dequantize(file: GGUFFile, name: str) -> np.ndarray:
    from gguf.quants import dequantize

    tensor = file.tensors[name]
    try:
        return dequantize(tensor.data, tensor.kind)
    except NotImplementedError as error:
        raise UserError(f"{file.path}: tensor '{name}': {one_line(error)}") from error
