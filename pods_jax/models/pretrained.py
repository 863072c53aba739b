"""Weights in and out: Hugging Face folders, hub models and GGUF files."""

import json
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh
from safetensors.numpy import save_file

from pods_jax.errors import UserError
from pods_jax.model_files import local_model
from pods_jax.models import gguf_file, hf
from pods_jax.models.checkpoint import Checkpoint, is_weight, named_weights, read_params, stored_names, swap_layout
from pods_jax.models.decoder import Decoder, ModelConfig, Params, model_weights

FILES = ("*.json", "*.safetensors")
DTYPES = ("float32", "bfloat16", "float16")


def load_pretrained(
    path_or_repo: str | Path, *, dtype: str = "float32", mesh: Mesh | None = None
) -> tuple[Decoder, Params]:
    """A trained model and its weights.

    Args:
      path_or_repo: a folder with config.json and safetensors, a .gguf file, a hub id "org/name", or "smollm2-135m".
      dtype: of all weights: "float32", "bfloat16" or "float16".
      mesh: shard the weights over it by `pods_jax.parallel.partition`; None leaves them on the default device.

    Raises:
      UserError: there is no such model, it is not a supported one, or its tensors do not fit its config.
    """
    if dtype not in DTYPES:
        raise UserError(f"dtype '{dtype}' is not supported, only {', '.join(DTYPES)}")
    checkpoint = _open(local_model(path_or_repo, FILES))
    shardings = None if mesh is None else _shardings(checkpoint.config, mesh)
    return Decoder(checkpoint.config), read_params(checkpoint, dtype, shardings)


def save_pretrained(path: str | Path, model: Decoder, params: Params) -> None:
    """Writes a folder that transformers and `load_pretrained` load: model.safetensors and config.json.

    Raises:
      UserError: no model type of transformers computes this model.
      ValueError: `params` are not this model's.
    """
    config = hf.config_json(model.config, str(params["embed"].dtype))
    tensors = _to_tensors(model.config, params)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / hf.WEIGHTS, metadata={"format": "pt"})
    (folder / hf.CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _open(path: Path) -> Checkpoint:
    if path.suffix == ".gguf":
        return gguf_file.open_gguf(path)
    if path.is_dir():
        return hf.open_folder(path)
    raise UserError(f"{path}: neither a folder nor a .gguf file")


def _shardings(config: ModelConfig, mesh: Mesh):
    from pods_jax.parallel.partition import param_shardings  # it imports the models: not at the top

    return param_shardings(config, mesh)


def _to_tensors(config: ModelConfig, params: Params) -> dict[str, np.ndarray]:
    """The weights under their stored names and in their stored layout, on the host."""
    declared = jax.tree.map(lambda w: w.shape, model_weights(config), is_leaf=is_weight)
    if jax.tree.map(np.shape, params) != declared:
        raise ValueError("params do not have the names and shapes that the model's config declares")
    values = {**params, **params["layers"]}
    tensors = {}
    for name, weight in named_weights(config):
        value = np.asarray(values[name])
        parts = value if weight.axes[0] == "layers" else value[None]
        for stored, part in zip(stored_names(hf.NAMES, name, weight), parts, strict=True):
            tensors[stored] = np.ascontiguousarray(swap_layout(name, part))
    return tensors
