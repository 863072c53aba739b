"""Task "gsm8k": the final answer is a number equal to the gold (compared exactly, without tolerance)."""

import functools
import re
from fractions import Fraction

from pods_jax.errors import UserError
from pods_jax.rewards.extract import final_answer
from pods_jax.rewards.grammar.words import OTHER_SCALES, leading_scale
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register


def check(gold: str) -> None:
    """See `Verifier`."""
    _expected(gold)


@register("gsm8k", bounded=True, check=check)
def judge(output: str, gold: str) -> Verdict:
    """Compares two numbers; `extract` and `number` document what is read as one.

    Raises:
      UserError: if the gold is not a number.
    """
    expected = _expected(gold)
    stated = parse_number(final_answer(output) or "")
    return no_answer() if stated is None else compared(stated == expected, str(stated))


@functools.lru_cache(maxsize=4096)
def _expected(gold: str) -> Fraction:
    number = parse_number(gold)
    if number is None:
        raise UserError(f"gsm8k: the gold {gold[:80]!r} is not a number")
    return number


# ---------------------------------------------------------------- numbers


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
