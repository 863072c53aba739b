"""Folders that are written into: what the system refuses is a UserError that names the folder and its role."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pods_jax.errors import UserError


@contextlib.contextmanager
def writing(path: Path, role: str = "workdir") -> Iterator[None]:
    """Turns the system's refusal to write below `path` (permissions, a full disk) into a UserError."""
    try:
        yield
    except OSError as e:
        raise UserError(f"{role} {path} cannot be written: {e.strerror}") from e


def make_folder(path: Path, role: str) -> None:
    """Makes a folder, and those that it lies in, unless it is there.

    Raises:
      UserError: it cannot be made.
    """
    with writing(path, role):
        path.mkdir(parents=True, exist_ok=True)


def refuse_file(path: Path, role: str) -> None:
    """Raises a UserError if a file is where a folder is to be, or where one that it lies in is to be."""
    file = next((p for p in (path, *path.parents) if p.is_file()), None)
    if file is not None:
        raise UserError(f"{role} {path} cannot be written: {file} is a file")
