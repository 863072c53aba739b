"""Loading and saving weights: Hugging Face folders, hub models and GGUF files."""

from pathlib import Path

from jax.sharding import Mesh

from pods_jax.cache import release_memory
from pods_jax.errors import UserError
from pods_jax.model_files import local_model
from pods_jax.models import gguf_file, hf
from pods_jax.models.decoder import Decoder, Params
from pods_jax.models.saving import SavesFiles, write_folder
from pods_jax.models.shardings import param_shardings
from pods_jax.models.tensors import Checkpoint, fingerprint, read_params, stored_dtype

FILES = ("*.json", "*.safetensors")
DTYPES = ("float32", "bfloat16", "float16")


def load_pretrained(
    path_or_repo: str | Path, *, dtype: str = "float32", mesh: Mesh | None = None, stacked: bool = True
) -> tuple[Decoder, Params]:
    """A trained model and its weights.

    Args:
      path_or_repo: a folder with config.json and safetensors, a .gguf file, a hub id "org/name", or "smollm2-135m".
      dtype: precision of all weights: "float32", "bfloat16" or "float16".
      mesh: devices over which `pods_jax.models.shardings` splits the weights; None: the default device.
      stacked: each weight of all layers in one array, as updates take them. False: a list of layers, for a model that
        only generates: of stacks `generate` makes such a list, and holds both.

    Raises:
      UserError: there is no such model, it is not supported, or its tensors do not fit its config.
    """
    return load_checkpoint(open_pretrained(path_or_repo), dtype=dtype, mesh=mesh, stacked=stacked)


def open_pretrained(path_or_repo: str | Path) -> Checkpoint:
    """A stored model's config and tensors, of which it reads the headers only: for a look before loading.

    Raises:
      UserError: there is no such model, or it is not supported.
    """
    path = local_model(path_or_repo, FILES)
    if path.suffix == ".gguf":
        return gguf_file.open_gguf(path)
    if path.is_dir():
        return hf.open_folder(path)
    raise UserError(f"{path}: neither a folder nor a .gguf file")


def load_checkpoint(
    checkpoint: Checkpoint, *, dtype: str = "float32", mesh: Mesh | None = None, stacked: bool = True
) -> tuple[Decoder, Params]:
    """The model and weights of a checkpoint from `open_pretrained`; see `load_pretrained`."""
    if dtype not in DTYPES:
        raise UserError(f"dtype '{dtype}' is not supported, only {', '.join(DTYPES)}")
    shardings = None if mesh is None else param_shardings(checkpoint.config, mesh)
    params = read_params(checkpoint, dtype, shardings, stacked)
    release_memory()  # of the arrays that were read and turned
    return Decoder(checkpoint.config), params


def own_dtype(path_or_repo: str | Path) -> str | None:
    """The precision of a stored model's matrices; None if they are quantised."""
    return stored_dtype(open_pretrained(path_or_repo))


def weights_fingerprint(path_or_repo: str | Path) -> str:
    """A hash of the weights that `load_pretrained` loads, from a few rows of each; see `tensors.fingerprint`."""
    return fingerprint(open_pretrained(path_or_repo))


def save_pretrained(
    path: str | Path,
    model: Decoder,
    params: Params,
    *,
    tokenizer: SavesFiles | None = None,
    dtype: str | None = None,
) -> None:
    """Writes a folder that transformers and `load_pretrained` load: config.json, and safetensors of at most 5 GB.

    Args:
      tokenizer: a tokenizer of `pods_jax.data.tokenizers`, whose files are written too; None: none.
      dtype: precision of the written weights; None: their own.

    Raises:
      UserError: no model type of transformers computes this model.
      ValueError: `params` are not this model's.
    """
    write_folder(Path(path), model.config, params, tokenizer, dtype)
