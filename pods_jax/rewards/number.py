r"""Numbers as people and models write them, read exactly.

Accepted: a sign, digits grouped by commas or blanks in threes, decimals, a fraction `a/b`, a currency sign, LaTeX
around it (`$18$`, `\(18\)`, `\text{18 dollars}`), a full stop after it, and a unit of up to four words ("18 dollars",
"540 meters/week"). An equation stands for what follows its last "=". A percent sign is a unit: 25% is 25. Thousand,
million and the like multiply, also one after another.

Refused, because they do not commit to one number: anything before the number, a second number, an unevaluated
operation (2^3, 12 - 4), a multiple of something else (5k, 2 dozen, 5 tenths, 5 pi), a comparison, an alternative
("18 or more"), digits grouped wrongly (12,34), more than 64 digits.
"""

import re
from fractions import Fraction

from pods_jax.rewards.maths.words import OTHER_SCALES, leading_scale

MAX_CHARS = 256
MAX_DIGITS = 64

_CHARACTERS = str.maketrans({"−": "-", "–": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "’": "'"})
_DECORATION = (
    (re.compile(r"\\(?:text|textbf|mathbf|mathrm) ?\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\[()\[\]!]"), ""),
    (re.compile(r"\\[,; ]"), " "),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=[a-z])[²³]"), ""),
    (re.compile(r"(?<!\d)[$€£]|[$€£](?!\d)"), ""),
)
_COMPARISON = re.compile(r"[<>≤≥≠≈~]|!=")
_NUMBER = re.compile(
    r"(?P<sign>[-+]?) ?"
    r"(?P<digits>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+|(?=\.[0-9]))"
    r"(?P<decimals>(?:\.[0-9]+)?)"
    r"(?:/(?P<denominator>[0-9]+))?"
    r"(?P<unit>\D*)"
)
_UNIT_WORD = re.compile(r"/?[^\W\d_]+(?:[-'][^\W\d_]+)*")
_MAX_UNIT_WORDS = 4
_OPERATIONS = frozenset({"cubed", "divided", "factorial", "minus", "over", "plus", "squared", "times", "x"})
_ALTERNATIVES = frozenset({"and", "but", "less", "more", "not", "or", "than", "to"})
_MULTIPLES = OTHER_SCALES | {"k"}


def parse_number(text: str) -> Fraction | None:
    """The number that `text` states, by the rules above; None if it does not state exactly one."""
    if len(text) > MAX_CHARS or _COMPARISON.search(text):
        return None
    match = _NUMBER.fullmatch(_tidy(text).rpartition("=")[2].strip())
    scale = match and _scale(match["unit"])
    if scale is None or sum(map(str.isdigit, match[0])) > MAX_DIGITS:
        return None
    numerator = Fraction(match["sign"] + re.sub("[, ]", "", match["digits"]) + match["decimals"])
    denominator = int(match["denominator"] or 1)
    return numerator / denominator * scale if denominator else None


def _tidy(text: str) -> str:
    """Plain characters; no LaTeX, currency or quotation around the number."""
    text = text.translate(_CHARACTERS)
    for pattern, replacement in _DECORATION:
        text = pattern.sub(replacement, text)
    return text.strip(" \t\r\n*`\"'")


def _scale(unit: str) -> int | None:
    """What the words after the number multiply it by; None if they are not a unit."""
    words = unit.strip(" %°.()").lower().replace("/", " /").split()
    if len(words) > _MAX_UNIT_WORDS or not (_OPERATIONS | _ALTERNATIVES).isdisjoint(words):
        return None
    if not all(map(_UNIT_WORD.fullmatch, words)) or any(map(str.isnumeric, unit)):  # "½" is a letter to `re`
        return None
    scale, units = leading_scale(words)
    return None if units and units[0] in _MULTIPLES else scale
