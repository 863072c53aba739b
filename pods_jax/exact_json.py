"""JSON that gives back what went in: tuples, sets, dictionaries with keys of any kind, and the numbers that JSON lacks.

A data set writes a scorer's entry into its gold, and the verifier, in another process, reads it: both use this.
"""

import json
from collections.abc import Mapping
from typing import Any

_TAG = "__kind__"


def dumps(value: Any) -> str:
    """The text of a value; what JSON has no form for becomes its `str`."""
    return json.dumps(_packed(value), default=str)


def loads(text: str) -> Any:
    """The value of a text.

    Raises:
      ValueError: for a text that is not JSON.
    """
    return json.loads(text, object_hook=_unpacked)


def _packed(value: Any) -> Any:
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": [_packed(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {_TAG: "set", "items": [_packed(item) for item in sorted(value, key=repr)]}
    if isinstance(value, list):
        return [_packed(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) and key != _TAG for key in value):
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, Mapping):
        return {_TAG: "dict", "items": [[_packed(key), _packed(item)] for key, item in value.items()]}
    return value


def _unpacked(found: dict[str, Any]) -> Any:
    kinds = {"tuple": tuple, "set": set, "dict": dict}
    kind = kinds.get(found.get(_TAG))
    return found if kind is None else kind(found["items"])
