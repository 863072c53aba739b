"""LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors, read and written."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from pods_jax.config.schema import LoraConfig
from pods_jax.errors import UserError
from pods_jax.io import read_json
from pods_jax.models import hf
from pods_jax.models.decoder import ModelConfig, Params
from pods_jax.models.lora import MODULES, adapter_weights

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
ONLY = {
    "peft_type": "LORA",
    "bias": "none",
    "lora_bias": False,
    "use_dora": False,
    "use_rslora": False,
    "fan_in_fan_out": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": [],
    "layers_to_transform": [],
    "layer_replication": [],
    "target_parameters": [],
    "trainable_token_indices": [],
}
"""Fields of adapter_config.json, each with the one value that `lora` computes; absent or null means the same."""


def save_adapter(path: str | Path, adapters: Params, lora: LoraConfig, base_model: str | None = None) -> None:
    """Writes a folder that `peft.PeftModel.from_pretrained(model, path)` loads; base_model: for its model card."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(lora.target_modules),
        "inference_mode": True,
    }
    tensors = {}
    for name, sides in adapters["layers"].items():
        for side, stacked in sides.items():
            for i, matrix in enumerate(np.asarray(stacked)):
                tensors[_stored_name(name, side, i)] = np.ascontiguousarray(matrix.T)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_adapter(path: str | Path, model: ModelConfig) -> tuple[Params, LoraConfig]:
    """The adapters of a folder in PEFT's format, float32, and their settings.

    Raises:
      UserError: a file is missing or unreadable, the adapter is of a kind that `lora` does not compute, or its tensors
        do not fit the model.
    """
    folder = Path(path)
    lora = _read_config(folder / CONFIG)
    names, read = hf.open_files([folder / WEIGHTS])
    weights = adapter_weights(model, lora)["layers"]
    expected = {_stored_name(n, s, i) for n in weights for s in "ab" for i in range(model.num_hidden_layers)}
    if different := expected ^ names:
        state = "lacks" if min(different) in expected else "has unexpected"
        raise UserError(f"{folder / WEIGHTS} {state} tensor '{min(different)}'")

    def stack(name: str, side: str) -> jax.Array:
        layers = np.stack([read(_stored_name(name, side, i)).T for i in range(model.num_hidden_layers)])
        if layers.shape != (shape := weights[name][side].shape):
            raise UserError(
                f"{folder / WEIGHTS}: the {name} adapters have shape {layers.shape}, the model needs {shape}"
            )
        return jnp.asarray(layers, jnp.float32)

    return {"layers": {name: {side: stack(name, side) for side in "ab"} for name in weights}}, lora


def _stored_name(name: str, side: str, layer: int) -> str:
    return f"base_model.model.{hf.NAMES[name].format(layer).removesuffix('weight')}lora_{side.upper()}.weight"


def _read_config(path: Path) -> LoraConfig:
    raw = {key: value for key, value in read_json(path).items() if value is not None}
    hf.check_only(raw, ONLY, path)
    modules = raw.get("target_modules", ())
    if not isinstance(modules, list) or set(modules) - MODULES.keys():
        raise UserError(f"{path}: target_modules = {modules!r} is not supported, only a list of {', '.join(MODULES)}")
    for name in ("r", "lora_alpha"):
        if name not in raw:
            raise UserError(f"{path}: no '{name}'")
    return LoraConfig(raw["r"], float(raw["lora_alpha"]), tuple(m for m in MODULES if m in modules))
