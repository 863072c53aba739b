"""Reading and writing LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from pods_jax.config.schema import LoraConfig
from pods_jax.errors import UserError
from pods_jax.fields import SIZE, check_only, field, one_line, real, shown, without_nulls
from pods_jax.io import read_json, write_atomic
from pods_jax.models import hf
from pods_jax.models.decoder import ModelConfig, Params, Weight
from pods_jax.models.lora import MODULES, adapter_weights
from pods_jax.models.tensors import Stored
from pods_jax.parallel.hosts import is_main, to_host

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
ONLY = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "bias": "none",
    "lora_bias": False,
    "use_dora": False,
    "use_rslora": False,
    "use_qalora": False,
    "use_bdlora": None,
    "fan_in_fan_out": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": [],
    "layers_to_transform": [],
    "layers_pattern": [],
    "layer_replication": [],
    "target_parameters": [],
    "trainable_token_indices": [],
    "alora_invocation_tokens": [],
    "loftq_config": {},
    "eva_config": None,
    "corda_config": None,
    "lora_ga_config": None,
    "velora_config": None,
    "monteclora_config": None,
    "arrow_config": None,
    "kasa_config": None,
    "megatron_config": None,
}
"""Fields of adapter_config.json, each with the only value that `lora` computes; absent or null means the same."""

PLAIN_STARTS = (True, False, "gaussian", "orthogonal")
"""Values of init_lora_weights that leave the base as it is, and whose adapter computes as plain LoRA does.

Other values (pissa, olora, loftq, corda, eva, ...) change the base weights or an adapter's scale.
"""

READ = {"r": SIZE, "lora_alpha": real(0, 1e6)}
FREE = {
    "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode", "lora_dropout",
    "megatron_core", "qalora_group_size", "runtime_config", "exclude_modules", "ensure_weight_tying",
}  # fmt: skip
"""Fields that have no effect on the computation of a trained adapter."""


def save_adapter(path: str | Path, adapters: Params, lora: LoraConfig, base_model: str | None = None) -> None:
    """Writes a folder that `peft.PeftModel.from_pretrained(model, path)` loads; base_model: the base's name.

    An old adapter_config.json is removed first, and the new one comes last: a folder that has one is complete. If there
    are several processes, all must call it; the main one writes.
    """
    folder = Path(path)
    adapters = to_host(adapters)
    if not is_main():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)
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
    write_atomic(folder / CONFIG, json.dumps(config, indent=2) + "\n")


def load_adapter(path: str | Path, model: ModelConfig) -> tuple[Params, LoraConfig]:
    """The adapters of a folder in PEFT's format, in float32, and their settings.

    Raises:
      UserError: a file is missing or unreadable, `lora` does not compute this kind of adapter, or its tensors do not
        fit the model.
    """
    folder = Path(path).expanduser()
    lora = _read_config(folder / CONFIG)
    stored = hf.open_files([folder / WEIGHTS])
    weights = adapter_weights(model, lora)["layers"]
    _check_tensors(folder / WEIGHTS, stored, weights)

    def stack(name: str, side: str) -> jax.Array:
        layers = [stored[_stored_name(name, side, i)].read().T for i in range(model.num_hidden_layers)]
        return jnp.asarray(np.stack(layers), jnp.float32)

    return {"layers": {name: {side: stack(name, side) for side in "ab"} for name in weights}}, lora


def with_adapters_settings(lora: LoraConfig) -> LoraConfig:
    """The settings with those of the adapter in `lora.path`, if there is one, where they are at their defaults.

    Raises:
      UserError: there is no such folder, its settings cannot be read, or they are not what `lora` computes.
    """
    if lora.path is None:
        return lora
    folder = Path(lora.path).expanduser()
    if not folder.is_dir():
        raise UserError(f"lora.path = '{lora.path}': there is no such folder")
    default = LoraConfig()
    own = _read_config(folder / CONFIG)
    names = ("rank", "alpha", "target_modules")
    return dataclasses.replace(lora, **{n: getattr(own, n) for n in names if getattr(lora, n) == getattr(default, n)})


def load_adapter_for(lora: LoraConfig, model: ModelConfig) -> Params:
    """The adapters in the folder `lora.path`, in float32.

    Raises:
      UserError: as in `load_adapter`, or the folder's settings are not those of `lora`.
    """
    adapters, own = load_adapter(lora.path, model)
    wanted = dataclasses.replace(lora, target_modules=tuple(m for m in MODULES if m in lora.target_modules))
    for name in ("rank", "alpha", "target_modules"):
        if getattr(wanted, name) != (theirs := getattr(own, name)):
            raise UserError(f"lora.{name} = {getattr(lora, name)!r}, but the adapter in {lora.path} has {theirs!r}")
    return adapters


def _check_tensors(path: Path, stored: Mapping[str, Stored], weights: Mapping[str, Mapping[str, Weight]]) -> None:
    """Checks names and shapes like `tensors.check_tensors`: its cost grows with the file, not with claimed sizes."""
    expected = set()
    for name, sides in weights.items():
        for side, weight in sides.items():
            layers, *shape = weight.shape
            for i in range(layers):
                tensor = _stored_name(name, side, i)
                if tensor not in stored:
                    raise UserError(f"{path} lacks tensor '{tensor}'")
                if stored[tensor].shape != tuple(shape[::-1]):
                    got = list(stored[tensor].shape)
                    raise UserError(f"{path}: tensor '{tensor}' has shape {got}, the model needs {shape[::-1]}")
                expected.add(tensor)
    if unexpected := stored.keys() - expected:
        raise UserError(f"{path} has unexpected tensor {shown(min(unexpected))}")


def _stored_name(name: str, side: str, layer: int) -> str:
    return f"base_model.model.{hf.NAMES[name].format(layer).removesuffix('weight')}lora_{side.upper()}.weight"


def _read_config(path: Path) -> LoraConfig:
    raw = without_nulls(read_json(path))
    check_only(raw, ONLY, path)
    start = raw.pop("init_lora_weights", True)
    if start not in PLAIN_STARTS:
        raise UserError(
            f"{path}: init_lora_weights = {shown(start)} is not supported: its arithmetic is not plain LoRA's"
        )
    for name in sorted(raw.keys() - ONLY.keys() - READ.keys() - FREE - {"target_modules"}):
        if raw[name]:
            raise UserError(f"{path}: {one_line(name)} = {shown(raw[name])} is not supported: an unknown field")
    modules = raw.get("target_modules", ())
    if not isinstance(modules, list) or not all(isinstance(m, str) and m in MODULES for m in modules):
        raise UserError(
            f"{path}: target_modules = {shown(modules)} is not supported, only a list of {', '.join(MODULES)}"
        )
    rank, alpha = (field(raw, name, READ[name], path) for name in ("r", "lora_alpha"))
    return LoraConfig(rank, float(alpha), tuple(m for m in MODULES if m in modules))
