"""Llama models in GGUF files, quantised or not, as llama.cpp's converter writes them."""

from pathlib import Path

import numpy as np

from pods_jax.errors import UserError
from pods_jax.model_files import GGUFFile
from pods_jax.models.checkpoint import Checkpoint
from pods_jax.models.decoder import ModelConfig

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
}
NAMES = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "lm_head": "output.weight"} | {
    ours: f"blk.{{}}.{theirs}.weight" for ours, theirs in LAYER_NAMES.items()
}

PREFIX = "llama."
KNOWN_KEYS = {
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "attention.key_length",
    "attention.value_length",
    "rope.freq_base",
    "rope.dimension_count",
}
NEUTRAL = {"rope.scaling.type": "none", "expert_count": 0, "expert_used_count": 0}
"""Keys, each with the one value that means the decoder's own computation."""


def open_gguf(path: Path) -> Checkpoint:
    """A GGUF file's config and tensors; a tensor is dequantised to float32 when it is read.

    Raises:
      UserError: the file is not GGUF, not a Llama, or asks for a computation that the decoder does not have.
    """
    file = GGUFFile(path)
    config = read_config(file)
    rows = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}

    def read(name: str) -> np.ndarray:
        array = _dequantize(file, name)
        heads = rows.get(name.split(".")[-2])
        return array if heads is None else half_split(array, heads)

    return Checkpoint(path, config, NAMES, frozenset(file.tensors), read)


def read_config(file: GGUFFile) -> ModelConfig:
    """The ModelConfig of a GGUF file whose general.architecture is "llama"."""
    if (architecture := file["general.architecture"]) != "llama":
        raise UserError(f"{file.path}: general.architecture '{architecture}' is not supported, only 'llama'")
    _check_keys(file)
    hidden, heads = file["llama.embedding_length"], file["llama.attention.head_count"]
    head_dim = file.get("llama.attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if file.get(PREFIX + name, head_dim) != head_dim:
            raise UserError(f"{file.path}: {PREFIX}{name} differs from the head size, {head_dim}: not supported")
    return ModelConfig(
        vocab_size=file["llama.vocab_size"] if "llama.vocab_size" in file else len(file["tokenizer.ggml.tokens"]),
        hidden_size=hidden,
        intermediate_size=file["llama.feed_forward_length"],
        num_hidden_layers=file["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=file.get("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=file["llama.attention.layer_norm_rms_epsilon"],
        rope_theta=file.get("llama.rope.freq_base", 10_000.0),
        tie_word_embeddings=NAMES["lm_head"] not in file.tensors,
        max_position_embeddings=file["llama.context_length"],
    )


def half_split(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection [heads * h, in] from interleaved RoPE pairs (0, 1), (2, 3), ... to halves.

    The inverse of `permute` in llama.cpp's convert_hf_to_gguf.py.
    """
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _check_keys(file: GGUFFile) -> None:
    for key in file:
        name = key.removeprefix(PREFIX)
        if key.startswith(PREFIX) and name not in KNOWN_KEYS and file[key] != NEUTRAL.get(name):
            raise UserError(f"{file.path}: {key} = {file[key]!r} is not supported")


def _dequantize(file: GGUFFile, name: str) -> np.ndarray:
    from gguf.quants import dequantize

    tensor = file.tensors[name]
    try:
        return dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise UserError(f"{file.path}: tensor '{name}': {error}") from error
