"""Checks of fields in files that others wrote (config.json, GGUF metadata, ...), by type and range, before their use.

A table of rules, one for each field, says which values a file may hold. Any other value is an error of one line that
names file, field and value. This module imports neither JAX nor any reader.
"""

import math
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pods_jax.errors import UserError

INT32 = 2**31 - 1
REQUIRED: Any = object()


class Rule(NamedTuple):
    """The values that a field may have.

    Attributes:
      words: the values in words, to follow "must be".
      fits: whether a value is one of them.
    """

    words: str
    fits: Callable[[Any], bool]


def whole(low: int, high: int = INT32) -> Rule:
    """Integers from `low` to `high`; true and 4.0 are no integers."""
    return Rule(f"a whole number in {low}..{high}", lambda x: type(x) is int and low <= x <= high)


def real(low: float | int, high: float | int) -> Rule:
    """Numbers strictly between two bounds; NaN is not a number."""
    return Rule(f"a number above {low:g} and below {high:g}", lambda x: type(x) in (int, float) and low < x < high)


def list_of(rule: Rule) -> Rule:
    """Lists of values that fit `rule`."""
    return Rule(f"a list, each entry {rule.words}", lambda x: type(x) is list and all(map(rule.fits, x)))


FLAG = Rule("true or false", lambda x: type(x) is bool)
TEXT = Rule("a text", lambda x: type(x) is str)
NUMBER = Rule("a number", lambda x: type(x) in (int, float) and math.isfinite(x))
OBJECT = Rule("an object", lambda x: isinstance(x, Mapping))
SIZE = whole(1)
ID = whole(0)
END_IDS = Rule("an id or a list of ids", lambda x: ID.fits(x) or (type(x) is list and all(map(ID.fits, x))))


def field(raw: Mapping[str, Any], name: str, rule: Rule, place: Path | str, default: Any = REQUIRED) -> Any:
    """The value of a field, or `default` if it is absent. place: the file, for messages.

    Raises:
      UserError: the value does not fit the rule, or the field is absent and has no default.
    """
    if name not in raw:
        if default is REQUIRED:
            raise UserError(f"{place}: no '{name}'")
        return default
    if not rule.fits(raw[name]):
        raise UserError(f"{place}: {name} = {shown(raw[name])} must be {rule.words}")
    return raw[name]


def check_fields(raw: Mapping[str, Any], rules: Mapping[str, Rule], place: Path | str) -> None:
    """Raises a UserError for the first field of `raw` that does not fit its rule; fields without a rule are free."""
    for name, rule in rules.items():
        if name in raw:
            field(raw, name, rule, place)


def check_only(raw: Mapping[str, Any], only: Mapping[str, Any], place: Path | str) -> None:
    """Raises a UserError for a field of `raw` whose value differs from the one in `only`."""
    for name, value in only.items():
        if raw.get(name, value) != value:
            raise UserError(f"{place}: {name} = {shown(raw[name])} is not supported, only {value!r}")


def without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields whose value is not null, for formats in which null means absent."""
    return {name: value for name, value in raw.items() if value is not None}


def shown(value: Any) -> str:
    """A value of unknown size, for a message: as Python writes it, without its middle if it is long."""
    return _printable(_short.repr(value))


def one_line(text: object, length: int = 300) -> str:
    """A text of unknown content, for a message: printable, on one line, and at most `length` characters long."""
    words = _printable(" ".join(str(text)[: 4 * length].split()))
    return words if len(words) <= length else words[: length - 3] + "..."


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
