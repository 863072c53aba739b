"""Reading `configs/NAME.py[:argument]` and `--config.section.key=value` overrides."""

import ast
import dataclasses
import difflib
import functools
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from pods_jax.config.schema import Config, default_config, flat, from_mapping, raise_problems, to_dict
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.fields import one_line
from pods_jax.models.peft_adapter import with_adapters_settings
from pods_jax.plugins import add_to_search_path, load_plugins
from pods_jax.registry import nearest


def load_config(spec: str, overrides: Sequence[str] = ()) -> Config:
    """The checked config of a file's `get_config([argument])`, with overrides applied.

    The file may import modules beside it and in the current folder.

    Args:
      spec: "path/to/file.py" or "path/to/file.py:argument"; "configs/demo.py" and the package's other configs are found
        from every folder where the package is installed.
      overrides: "section.key=value" strings; values are Python literals, anything else is a string.

    Raises:
      UserError: no such file or argument, an error in the file, unknown keys, wrong types, values that do not fit
        together.
    """
    return freeze(load_values(spec), overrides)


def load_values(spec: str | None) -> ConfigDict | Mapping[str, Any]:
    """The values of a config file, unchecked, to be edited; of None, the defaults.

    Raises:
      UserError: no such file or argument, or an error in the file.
    """
    if spec is None:
        return default_config()
    path, _, argument = spec.partition(":")
    return _call_get_config(_config_file(path), argument)


def freeze(values: Any, overrides: Sequence[str] = ()) -> Config:
    """The checked config of edited values: a ConfigDict such as `default_config()`, or a mapping of sections.

    overrides: as in `load_config`.

    Raises:
      UserError: another type, unknown keys, wrong types, values that do not fit together; all are named.
    """
    load_plugins()
    if not isinstance(values, ConfigDict | Mapping):
        raise UserError(f"a config is made of a ConfigDict or a mapping, got {type(values).__name__}")
    if overrides:
        values = _applied(values, overrides)
    config, problems = from_mapping(values)
    if not problems:
        config = dataclasses.replace(config, lora=with_adapters_settings(config.lora))
    raise_problems(problems + violations(config))
    return config


def origin_of(spec: str) -> dict[str, str]:
    """The place of a config, for a run's folder: its file and argument, and the current folder."""
    path, colon, argument = spec.partition(":")
    return {"config": f"{_config_file(path).resolve()}{colon}{argument}", "folder": os.getcwd()}


def import_origin(origin: Mapping[str, Any]) -> None:
    """Imports again what the config of an `origin_of` imported, as far as it is still there.

    Raises:
      UserError: its file is not Python, or raises an error.
    """
    path = Path(str(origin.get("config", "")).rpartition(".py")[0] + ".py")
    add_to_search_path(path.parent, str(origin.get("folder", ".")))
    if path.is_file():
        load_module(path)


# ---------------------------------------------------------------- the file


def _config_file(path: str) -> Path:
    """The file of that path, else the one that the installed package brought, else the path as it is."""
    if Path(path).is_file():
        return Path(path)
    try:
        files = importlib.metadata.files("pods_jax") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    wanted = ("share", "pods_jax", *Path(path).parts)
    found = [Path(str(file.locate())) for file in files if file.parts[-len(wanted) :] == wanted]
    return next((file for file in found if file.is_file()), Path(path))


def _call_get_config(path: Path, argument: str) -> ConfigDict:
    module = load_module(path)
    get_config = getattr(module, "get_config", None)
    if not callable(get_config):
        raise UserError(f"{path} has no get_config()")
    if argument and not inspect.signature(get_config).parameters:
        raise UserError(f"{path} takes no argument, got ':{argument}'")
    values = _run(path, lambda: get_config(argument) if argument else get_config())
    if not isinstance(values, ConfigDict | Mapping):
        line = inspect.unwrap(get_config).__code__.co_firstlineno
        raise UserError(f"{path}:{line}: get_config() must return the config, and returns {type(values).__name__}")
    return values


def load_module(path: Path) -> ModuleType:
    """The module of a config file, which can import what is beside it and in the current folder.

    A file that has not changed is run once, so that parts that it registers are registered once.

    Raises:
      UserError: there is no such file, it is not Python, or it raises an error.
    """
    if not path.is_file():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], n=1)
        raise UserError(f"no config file {path}" + (f" (did you mean {path.parent / near[0]}?)" if near else ""))
    if path.suffix != ".py":
        raise UserError(f"config file {path} is not Python: its name must end in .py")
    add_to_search_path(path.parent, os.getcwd())
    state = path.stat()
    return _executed(path.resolve(), path, state.st_mtime_ns, state.st_size)


@functools.cache
def _executed(resolved: Path, path: Path, mtime_ns: int, size: int) -> ModuleType:
    """path: as the user named it, for messages. mtime_ns, size: they tell apart a file's states."""
    spec = importlib.util.spec_from_file_location(path.stem, resolved)
    module = importlib.util.module_from_spec(spec)
    importable = _names(path.stem, resolved)
    if importable:
        sys.modules[path.stem] = module  # where dataclasses and reward workers look for it
    try:
        _run(path, lambda: spec.loader.exec_module(module))
    except UserError:
        if importable:
            del sys.modules[path.stem]
        raise
    return module


def _names(name: str, file: Path) -> bool:
    """Whether an import of the name would find the file."""
    if not name.isidentifier() or name in sys.modules:
        return False
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None and Path(found.origin).resolve() == file


def _run(path: Path, call: Callable[[], Any]) -> Any:
    """The call's result. An error is a UserError that names the line of the config file, and where else it arose."""
    try:
        return call()
    except UserError:
        raise
    except SyntaxError as error:
        place = error.filename or path
        raise UserError(f"{place}:{error.lineno or 1}: {type(error).__name__}: {one_line(error.msg)}") from error
    except Exception as error:  # a config file is a program
        raise UserError(_described(path, error)) from error


def _described(path: Path, error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame.lineno for frame in frames if _is(frame.filename, path)]
    last = frames[-1]
    place = f"{path}:{own[-1]}" if own else str(path)
    if "ml_collections" in last.filename and (key := re.search(r"(\w+)\\?[\"']", str(error))):
        known = [*to_dict(Config()), *flat(to_dict(Config()))]
        return f"{place}: unknown key '{key[1]}' ({nearest(key[1], {name.rpartition('.')[2] for name in known})})"
    elsewhere = own and not _is(last.filename, path) and "site-packages" not in last.filename
    within = f" ({last.filename}:{last.lineno})" if elsewhere else ""
    return f"{place}: {type(error).__name__}: {one_line(error)}{within}"


def _is(filename: str | None, path: Path) -> bool:
    return filename is not None and Path(filename).resolve() == path.resolve()


# ---------------------------------------------------------------- overrides


def _applied(values: ConfigDict | Mapping[str, Any], overrides: Sequence[str]) -> ConfigDict:
    changed = ConfigDict(values, type_safe=False).unlock()
    for override in overrides:
        _apply(changed, override)
    return changed


def _apply(values: ConfigDict, override: str) -> None:
    """Sets one key; a key that does not exist is left for `from_mapping` to report with the rest."""
    key, equals, text = override.partition("=")
    if not equals:
        raise UserError(f"override '--config.{override}' has no '=value'")
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(values, ConfigDict):
            raise UserError(f"override '--config.{key}': {section} is inside a value, not a section")
        values = values[section] if section in values else _add_section(values, section)
    try:
        values[name] = _literal(text)
    except OverflowError as error:
        raise UserError(f"override '--config.{key}': a number of {len(text)} digits is too large") from error


def _add_section(values: ConfigDict, name: str) -> ConfigDict:
    values[name] = ConfigDict(type_safe=False)
    return values[name]


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # as its documentation lists
        return text
