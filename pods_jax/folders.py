"""Folders that are written into: what the system refuses is a UserError that names the folder and its role."""

import contextlib
import os
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


def refuse_unwritable(path: Path, role: str) -> None:
    """Raises a UserError if the path is not, or cannot become, a folder that can be written to; makes nothing."""
    present = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not (present.is_dir() and os.access(present, os.W_OK)):
        raise UserError(f"{role} {path} cannot be written: {present} is not a folder that can be written to")
