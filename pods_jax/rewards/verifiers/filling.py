r"""Task "filling": a chemical equation, compared as a reaction, or else a short text.

Two equations are the same reaction if each side has the same species in the same proportion: coefficients up to a
common factor (2 H2 + O2 = 2 H2O is 4 H2 + 2 O2 = 4 H2O), species in any order, repeated ones added up. States such as
(aq), the kind of arrow and what is written above it, LaTeX and Unicode indices do not count; the direction of the
reaction does. Formulas are compared as they are written. A gold without "=" or an arrow is compared as text, blanks
and case aside.

The answer is the marked one (see `extract`), what follows "equation is", or the reply if it is one line.
"""

import functools
import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from pods_jax.errors import UserError
from pods_jax.rewards.extract import after_thinking, final_answer
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register

MAX_CHARS = 1_000
MAX_DIGITS = 9

Side = Mapping[str, Fraction]

_INDICES = str.maketrans("₀₁₂₃₄₅₆₇₈₉⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻₊₋−–", "01234567890123456789+-+---")
_ARROW = re.compile(
    r"\\(?:long)?(?:right|leftright)arrow|\\to\b|\\rightleftharpoons|<?[-=]+>|[→⟶⇌⇄↔⟹=]|-{2,}"
    r"|\\x(?:(?:right|leftright)arrow|rightleftharpoons|longequal)\s?(?:\[[^\[\]]*\])?\{(?:[^{}]|\{[^{}]*\})*\}"
)
_LATEX = re.compile(
    r"\\(?:ce|mathrm|text|mathsf|boxed)\s?\{|\\[,;:! ]|\\left|\\right|[${}_^`*\"]|\\[()\[\]]|↑|↓|\\(?:up|down)arrow"
)
_ARGUMENT = r"\s?(?:\{\s?([0-9]{1,4})\s?\}|([0-9]))"
_FRACTION = re.compile(rf"\\[dt]?frac{_ARGUMENT}{_ARGUMENT}")
_ONE_CHARACTER = str.maketrans({"½": "(1/2)", "⅓": "(1/3)", "⅔": "(2/3)", "¼": "(1/4)", "¾": "(3/4)"})
_CHARGE = re.compile(r"\{([-+])([0-9]?)\}")
_HYDRATE = re.compile(r"(?<=[\w)\]}])\s?(?:[*·•⋅∙]|\\cdot)\s?(?=[0-9A-Z]|\\(?:ce|mathrm|mathsf|text)\b)")
_STATE = re.compile(r"\((?:aq|s|l|g|solid|liquid|gas|conc|dil)\.?\)", re.IGNORECASE)
_PLUS = re.compile(r"\s\+\s|\+(?=\s*[0-9A-Z(\[])")
_TERM = re.compile(
    r"\(?(?P<number>[0-9]+(?:/[0-9]+|\.[0-9]+)?)?\)?\s*·?\s*(?P<formula>[A-Z(\[e][A-Za-z0-9()\[\].·+-]*)"
)
_PHRASE = re.compile(r"\bequation\s(?:is|becomes)\b\s{0,3}:?|\bequation\s{0,3}:", re.IGNORECASE)


def check(gold: str) -> None:
    """See `Verifier`."""
    expected(gold)


def has_arrow(text: str) -> bool:
    """Whether a text is meant as a reaction."""
    return bool(_ARROW.search(text))


@register("filling", bounded=True, check=check)
def verify(output: str, gold: str) -> Verdict:
    """Compares two reactions, or two texts.

    Raises:
      UserError: if the gold is empty, or has an arrow and is no reaction.
    """
    reaction = expected(gold)
    answer = read_answer(output)
    if not answer:
        return no_answer()
    if reaction is None:
        return compared(_plain(answer) == _plain(gold), answer)
    stated = parse_reaction(answer)
    return Verdict(False, answer, "unparsed") if stated is None else compared(same_reaction(reaction, stated), answer)


@functools.lru_cache(maxsize=4096)
def expected(gold: str) -> tuple[Side, Side] | None:
    """The reaction of a gold; None if it is a text."""
    if not gold.strip():
        raise UserError("filling: the gold is empty")
    if not has_arrow(gold):
        return None
    reaction = parse_reaction(gold)
    if reaction is None:
        raise UserError(f"filling: the gold {gold[:80]!r} is not a chemical equation")
    return reaction


def read_answer(output: str) -> str | None:
    """The text of the answer, by the rule above."""
    marked = final_answer(output)
    if marked is not None:
        return marked
    text = after_thinking(output)
    end = max((phrase.end() for phrase in _PHRASE.finditer(text)), default=0)
    lines = [line for line in text[end:].split("\n") if line.strip(" \t\r`$")]
    return lines[0].strip() if lines and (end or len(lines) == 1) else None


def parse_reaction(text: str) -> tuple[Side, Side] | None:
    """(reactants, products), each a count by formula; None if the text is not one reaction."""
    sides = _ARROW.split(text.strip(" .")) if len(text) <= MAX_CHARS else []
    parsed = [_side(side) for side in sides]
    return (parsed[0], parsed[1]) if len(parsed) == 2 and None not in parsed else None


def same_reaction(left: tuple[Side, Side], right: tuple[Side, Side]) -> bool:
    """Whether all coefficients of one are those of the other times one factor."""
    if any(set(a) != set(b) for a, b in zip(left, right, strict=True)):
        return False
    factors = {b[formula] / a[formula] for a, b in zip(left, right, strict=True) for formula in a}
    return len(factors) == 1


def _side(text: str) -> Side | None:
    """The counts by formula of one side, states of matter left out; None if a term is no formula with a count."""
    counts: Counter[str] = Counter()
    text = _HYDRATE.sub("·", _FRACTION.sub(r"(\1\2/\3\4)", text.translate(_ONE_CHARACTER)))
    bare = _LATEX.sub("", _CHARGE.sub(r"\2\1", text.translate(_INDICES)))
    for term in _PLUS.split(_STATE.sub("", bare)):
        match = _TERM.fullmatch(term.strip())
        if match is None or len(match["number"] or "") > MAX_DIGITS:
            return None
        above, _, below = (match["number"] or "1").partition("/")
        count = Fraction(above) / int(below or 1) if int(below or 1) else Fraction(0)
        if not count:
            return None
        counts[match["formula"].replace("·", ".")] += count
    return counts


def _plain(text: str) -> str:
    return " ".join(_LATEX.sub("", text).split()).strip(" .").lower()
