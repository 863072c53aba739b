"""Modules from outside of this package: those that a config file imports, and the plugins of installed packages."""

import contextlib
import functools
import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pods_jax.errors import UserError
from pods_jax.fields import one_line

GROUP = "pods_jax.plugins"
"""The group of entry points whose modules are imported before a config's names are looked up."""


def add_to_search_path(*folders: str | Path) -> None:
    """Lets modules in the folders be imported, also by reward workers; what is installed comes before them."""
    for folder in map(os.path.abspath, folders):
        if folder not in sys.path:
            sys.path.append(folder)


@functools.cache
def load_plugins() -> None:
    """Imports the modules of all installed packages that name any in the group; they register parts.

    Raises:
      UserError: one of them cannot be imported.
    """
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:  # a stranger's module may raise anything
            package = entry.dist.name if entry.dist else "an installed package"
            raise UserError(
                f"plugin '{entry.name}' of {package} cannot be imported ({entry.value}: {type(error).__name__}: "
                f"{one_line(error)})"
            ) from error


@contextlib.contextmanager
def as_if_absent(package: str) -> Iterator[None]:
    """Inside, an import of the package fails as where it is not installed, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None
    try:
        yield
    finally:
        del sys.modules[package]
