"""Arguments of config files: a method, and what an ablation changes, as in `:pods,n=128,normalize=before`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from pods_jax.errors import UserError
from pods_jax.registry import nearest


@dataclasses.dataclass(frozen=True)
class Method:
    """n rollouts generated a prompt, m of them kept by a rule; further keys by "section.key"."""

    n: int
    m: int
    rule: str
    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _normalize(text: str) -> str:
    """Whose mean and deviation advantages have: "after" selection (the kept) or "before" (the group)."""
    return {"after": "kept", "before": "group"}[text]


OPTIONS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "n": ("rollout.num_generations", int, "an integer"),
    "m": ("selection.num_kept", int, "an integer"),
    "rule": ("selection.rule", str, "a selection rule"),
    "normalize": ("objective.statistics", _normalize, "before or after"),
}
"""Name -> (config key, from text, what it must be). A method that trains on all it generates has m = n = either."""


def set_method(config: ConfigDict, argument: str, methods: Mapping[str, Method]) -> None:
    """Sets the method that the argument names, the first of `methods` by default, and then its options.

    Args:
      argument: items separated by commas: a method first, if any; options, "name=value" (see `OPTIONS`).

    Raises:
      UserError: an unknown method or option, or a value that is none.
    """
    first, *rest = argument.split(",")
    if "=" in first:
        first, rest = next(iter(methods)), [first, *rest]
    if first not in methods:
        raise UserError(f"no method '{first}' ({nearest(first, methods)}); options are {', '.join(OPTIONS)}")
    method = methods[first]
    sizes = {"rollout.num_generations": method.n, "selection.num_kept": method.m, "selection.rule": method.rule}
    changes = dict(_option(item) for item in rest)
    given = [value for key, value in changes.items() if key in list(sizes)[:2]]
    if method.rule == "all" and "selection.rule" not in changes and given:
        changes |= dict.fromkeys(list(sizes)[:2], given[-1])
    config.update_from_flattened_dict(sizes | dict(method.keys) | changes)


def _option(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals or name not in OPTIONS:
        raise UserError(f"'{item}' is no option: write name=value with a name of {', '.join(OPTIONS)}")
    key, read, kind = OPTIONS[name]
    try:
        return key, read(text)
    except (ValueError, KeyError) as error:
        raise UserError(f"'{item}': {name} must be {kind}") from error
