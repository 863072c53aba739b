"""Reading `configs/NAME.py[:argument]` and `--config.section.key=value` overrides."""

import ast
import dataclasses
import difflib
import importlib.util
import inspect
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ml_collections import ConfigDict

from pods_jax.config.schema import Config, from_mapping, raise_problems
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.models.peft_adapter import with_adapters_settings


def load_config(spec: str, overrides: Sequence[str] = ()) -> Config:
    """The checked config of a file's `get_config([argument])`, with overrides applied.

    Args:
      spec: "path/to/file.py" or "path/to/file.py:argument".
      overrides: "section.key=value" strings; values are Python literals, anything else is a string.

    Raises:
      UserError: no such file or argument, unknown keys, wrong types, values that do not fit together.
    """
    path, _, argument = spec.partition(":")
    values = _call_get_config(Path(path), argument)
    for override in overrides:
        _apply(values, override)
    config, problems = from_mapping(values)
    if not problems:
        config = dataclasses.replace(config, lora=with_adapters_settings(config.lora))
    raise_problems(problems + violations(config))
    return config


def _call_get_config(path: Path, argument: str) -> ConfigDict:
    if not path.is_file():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], n=1)
        raise UserError(f"no config file {path}" + (f" (did you mean {path.parent / near[0]}?)" if near else ""))
    module = load_module(path)
    if not hasattr(module, "get_config"):
        raise UserError(f"{path} has no get_config()")
    if argument and not inspect.signature(module.get_config).parameters:
        raise UserError(f"{path} takes no argument, got ':{argument}'")
    return module.get_config(argument) if argument else module.get_config()


def load_module(path: Path) -> ModuleType:
    """The module of a config file, which need not be on the search path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    values[name] = _literal(text)


def _add_section(values: ConfigDict, name: str) -> ConfigDict:
    values[name] = ConfigDict(type_safe=False)
    return values[name]


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
