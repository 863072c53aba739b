"""Numbers that state their base: `52_8`, `1A_{16}`, `101_{two}`."""

import re

from pods_jax.rewards.grammar.nodes import BaseNumber

MAX_DIGITS = 1_000

_BASE = re.compile(
    r"\(?(?:\\(?:text|mathrm)\s?\{)?(?P<digits>-?[0-9A-F]+(?:\.[0-9A-F]+)?)\}?\)?\s?_\s?\{?\s?(?:\\(?:text|mathrm)\s?\{)?"
    r"(?P<base>[0-9]{1,2}|[a-z]+)\s?\}{0,2}"
)
_BASES = "two three four five six seven eight nine ten eleven twelve"
_BASE_WORDS = dict(zip(_BASES.split(), range(2, 13), strict=True)) | {"sixteen": 16, "hex": 16}


def base_literal(text: str) -> BaseNumber | None:
    """The number, if the text is nothing but digits with a base as subscript."""
    match = _BASE.fullmatch(text)
    return based_number(match["digits"], match["base"]) if match else None


def based_number(digits: str, base_name: str) -> BaseNumber | None:
    """None if these are no digits in that base, or a letter with an index."""
    base = int(base_name) if base_name.isdigit() and len(base_name) <= 2 else _BASE_WORDS.get(base_name, 0)
    bare = digits.lstrip("-").replace(".", "")
    if len(bare) > MAX_DIGITS or not bare.isalnum() or not 2 <= base <= 36:
        return None
    if not all(int(digit, 36) < base for digit in bare):
        return None
    return BaseNumber(digits.lstrip("0") or "0", base) if len(bare) > 1 or bare.isdigit() else None
