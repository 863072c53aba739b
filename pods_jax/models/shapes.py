"""The shapes of published models, for planning without their files. A new model is one entry.

The numbers are those of each model's config.json on the Hugging Face hub; tests compare them with the models' sizes.
"""

import dataclasses
from pathlib import Path

from pods_jax.model_files import SMOLLM2, local_model
from pods_jax.models import gguf_file
from pods_jax.models.config_json import CONFIG, read_config
from pods_jax.models.decoder import ModelConfig, RopeScaling

_QWEN = ModelConfig(
    vocab_size=151_936,
    hidden_size=2048,
    intermediate_size=11_008,
    num_hidden_layers=36,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=128,
    rms_norm_eps=1e-6,
    rope_theta=1_000_000.0,
    tie_word_embeddings=True,
    attention_bias=True,
    max_position_embeddings=32_768,
)
_QWEN3 = dataclasses.replace(
    _QWEN, attention_bias=False, qk_norm=True, num_key_value_heads=8, max_position_embeddings=40_960
)

SHAPES = {
    "Qwen/Qwen2.5-3B-Instruct": _QWEN,
    "Qwen/Qwen2.5-7B-Instruct": dataclasses.replace(
        _QWEN, vocab_size=152_064, hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28,
        num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False,
    ),
    "Qwen/Qwen2.5-Math-1.5B": dataclasses.replace(
        _QWEN, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        rope_theta=10_000.0, max_position_embeddings=4096,
    ),
    "Qwen/Qwen3-4B": dataclasses.replace(
        _QWEN3, hidden_size=2560, intermediate_size=9728, num_attention_heads=32,
    ),
    "Qwen/Qwen3-4B-Base": dataclasses.replace(
        _QWEN3, hidden_size=2560, intermediate_size=9728, num_attention_heads=32, max_position_embeddings=32_768,
    ),
    "Qwen/Qwen3-8B": dataclasses.replace(
        _QWEN3, hidden_size=4096, intermediate_size=12_288, num_attention_heads=32, tie_word_embeddings=False,
    ),
    "Qwen/Qwen3-14B": dataclasses.replace(
        _QWEN3, hidden_size=5120, intermediate_size=17_408, num_hidden_layers=40, num_attention_heads=40,
        tie_word_embeddings=False,
    ),
    "meta-llama/Llama-3.2-3B-Instruct": ModelConfig(
        vocab_size=128_256,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=28,
        num_attention_heads=24,
        num_key_value_heads=8,
        head_dim=128,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(32.0, 1.0, 4.0, 8192),
        tie_word_embeddings=True,
        max_position_embeddings=131_072,
    ),
    SMOLLM2: ModelConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    ),
}  # fmt: skip
"""The shapes by hub id, or by the name of a packaged model."""


def model_shape(path_or_repo: str | Path) -> ModelConfig:
    """The ModelConfig of the model that `load_pretrained` loads, without reading or downloading a weight.

    Raises:
      UserError: there is no such model, or it is not supported.
    """
    if str(path_or_repo) in SHAPES:
        return SHAPES[str(path_or_repo)]
    path = local_model(path_or_repo, (CONFIG,))
    return gguf_file.open_gguf(path).config if path.suffix == ".gguf" else read_config(path / CONFIG)
