"""Sentences that hold exactly one number ("The distance is 27 miles."): the number is the answer."""

import re

from pods_jax.rewards.grammar.units import DIVISIONS, LOOSE_ENDS, read_unit
from pods_jax.rewards.grammar.words import changes_value, leading_scale, listed

MAX_CHARS = 200
MAX_WORDS = 30

_NUMBER = re.compile(
    r"(?P<before>.*?)(?P<number>[$€£]?-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:/[0-9]+)?%?)(?P<after>[^0-9]*)"
)
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_MARKUP = re.compile(r"\\[()\[\]]|[*$]+(?=[0-9])|(?<=[0-9])[*$]+")
_STATING = listed(
    "is are was were be equals makes make made earns earned has have had needs need takes took costs cost gets get "
    "pays paid spends spent sells sold leaves left there contains travels ran runs gives total"
)


def one_number(text: str) -> str | None:
    """The number and unit of a sentence that states one; None for all other texts.

    It begins with the number ("27 miles from City A."), or a verb stands before it ("She makes $18 a day"). No word may
    say that the number is not the value ("about", "not", "six", "or").
    """
    match = _NUMBER.fullmatch(_MARKUP.sub("", text).strip().rstrip(".!")) if len(text) <= MAX_CHARS else None
    if match is None:
        return None
    before, after = (_words(match[side]) for side in ("before", "after"))
    if before is None or after is None or not 1 <= len(before) + len(after) <= MAX_WORDS:
        return None
    if any(map(changes_value, before[:-1])) or (before and before[-1].lower() not in _STATING):
        return None
    scale_words = len(after) - len(leading_scale(after)[1])
    unit = _leading_unit(after[scale_words:], may_be_missing=bool(before))
    return None if unit is None else " ".join([match["number"], *after[:scale_words], *unit])


def _words(text: str) -> list[str] | None:
    """The words of a text; None if it holds more than words, blanks, commas and apostrophes."""
    rest = _WORD.sub("", text)
    return _WORD.findall(text) if not rest.strip(" ,'’\n") else None


def _leading_unit(words: list[str], *, may_be_missing: bool) -> list[str] | None:
    """The longest phrase at the start that is a unit, if no word after it changes the value; None for neither."""
    if any(map(changes_value, words)):
        return None
    for length in range(len(words), 0, -1):
        if read_unit(" ".join(words[:length])) is not None:
            return words[:length]
    loose = not words or words[0].lower() in LOOSE_ENDS | DIVISIONS
    return [] if may_be_missing and loose else None
