"""JSON that keeps tuples, sets, dictionaries with keys of any type, and the numbers that JSON lacks.

A data set writes an entry into its gold with `dumps`, and the verifier, in another process, reads it with `loads`.
"""

import json
from collections.abc import Mapping
from typing import Any

_TAG = "__kind__"


def dumps(value: Any) -> str:
    """The text of a value. An object of a type that has no form here becomes its `str`."""
    return json.dumps(_packed(value), default=str)


def loads(text: str) -> Any:
    """The value of a text.

    Raises:
      ValueError: the text is not JSON.
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
