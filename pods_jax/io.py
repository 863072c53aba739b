"""Reading and writing files. A refusal by the system becomes a UserError that names the folder and its role."""

import contextlib
import fcntl
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from pods_jax.fields import one_line

PARTIAL = ".partial"
"""End of the names of files that are being written."""


def local_path(path: str | Path, role: str) -> Path:
    """The path with ~ expanded.

    Raises:
      UserError: the path is a URL of a place outside of this machine's file system.
    """
    if "://" in str(path):
        raise UserError(f"{role} {path} is a URL: only folders of this machine's file system can be used")
    return Path(path).expanduser()


@contextlib.contextmanager
def writing(path: Path, role: str = "workdir") -> Iterator[None]:
    """Turns the system's refusal to write below `path` (permissions, a full disk) into a UserError."""
    try:
        yield
    except OSError as e:
        raise UserError(f"{role} {path} cannot be written: {e.strerror}") from e


def make_folder(path: Path, role: str) -> None:
    """Makes a folder and its parents, unless they exist.

    Raises:
      UserError: the folder cannot be made.
    """
    with writing(path, role):
        path.mkdir(parents=True, exist_ok=True)


def refuse_unwritable(path: Path, role: str) -> None:
    """Raises a UserError if the path is not, and cannot become, a writable folder. It makes nothing."""
    present = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not (present.is_dir() and os.access(present, os.W_OK)):
        raise UserError(f"{role} {path} cannot be written: {present} is not a folder that can be written to")


def write_atomic(path: Path, text: str) -> None:
    """Replaces a file entirely or not at all, even if the machine loses power."""
    partial = path.with_name(path.name + PARTIAL)
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_shared(path: Path, content: bytes) -> None:
    """Replaces a file of a folder that several processes write to, entirely or not at all.

    Removes what killed processes have left behind there. Such files are told from those being written by a lock, which
    ends with its process.

    Raises:
      OSError: the system refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_partial(path.parent)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=PARTIAL, delete=False) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def remove_partial(folder: Path) -> None:
    """Removes the files that `write_shared` had begun in processes which were killed."""
    for path in folder.glob(f"*{PARTIAL}"):
        with contextlib.suppress(OSError), path.open("rb") as file:  # another process writes it, or has just removed it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of at most a few megabytes. UserError if the file is absent or holds anything else."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_JSON_BYTES:
        raise UserError(f"{path}: larger than {MAX_JSON_BYTES >> 20} MiB")
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {one_line(error)}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: not a JSON object")
    return value


MAX_JSON_BYTES = 4 << 20
"""Limit on JSON files, above the size of any config or index of shards. Parsed JSON takes up to 30 times its size."""


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file, or [] if there is no file. A last line without its end is left out.

    Raises:
      UserError: another line is no JSON object.
    """
    if not path.is_file():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [_record(path, number, line) for number, line in enumerate(whole.splitlines(), start=1)]


def write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Replaces a JSON-lines file, entirely or not at all; NaN becomes null.

    Raises:
      UserError: the file cannot be written.
    """
    with writing(path, "--out"):
        write_atomic(path, "".join(json.dumps(finite(dict(record)), ensure_ascii=False) + "\n" for record in records))


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except ValueError as error:
        raise UserError(f"{path}, line {number}: not JSON") from error
    if not isinstance(record, dict):
        raise UserError(f"{path}, line {number}: not a JSON object")
    return record


def finite(value: Any) -> Any:
    """The value with None for infinite numbers and NaN, which JSON does not have, at any depth."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
