"""The model families, each as the facts that set it apart from the others. A new family is one registration."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pods_jax.registry import Registry


@dataclasses.dataclass(frozen=True)
class Family:
    """A `model_type` of transformers, which is also the `general.architecture` of its GGUF files.

    Attributes:
      architecture: the class with which transformers loads it.
      traits: the fields of ModelConfig that the model type fixes.
      only: config.json fields, each with the one value that the decoder computes; absent or null means the same.
      defaults: transformers' values of absent fields, where they differ from those of `config_json.read_config`.
      windows: whether `use_sliding_window` and `max_window_layers` can make layers attend over a window.
      gguf_interleaved: whether llama.cpp's converter reorders the rows of q and k, for its interleaved RoPE.
    """

    architecture: str
    traits: Mapping[str, bool]
    only: Mapping[str, Any]
    defaults: Mapping[str, int] = dataclasses.field(default_factory=dict)
    windows: bool = False
    gguf_interleaved: bool = False


FAMILIES: Registry[Family] = Registry("model type")

FAMILIES.register("llama")(
    Family(
        architecture="LlamaForCausalLM",
        traits={"attention_bias": False, "qk_norm": False},
        only={"attention_bias": False, "mlp_bias": False},
        gguf_interleaved=True,
    )
)
FAMILIES.register("qwen2")(
    Family(
        architecture="Qwen2ForCausalLM",
        traits={"attention_bias": True, "qk_norm": False},
        only={},
        defaults={"num_key_value_heads": 32},
        windows=True,
    )
)
FAMILIES.register("qwen3")(
    Family(
        architecture="Qwen3ForCausalLM",
        traits={"attention_bias": False, "qk_norm": True},
        only={"attention_bias": False},
        defaults={"num_key_value_heads": 32, "head_dim": 128},
        windows=True,
    )
)
