"""Task "gsm8k": the final answer is a number equal to the gold (compared exactly, without tolerance).

An answer is a number with nothing but a unit after it; an equation with a name, or a calculation of the same value,
before "="; or a sentence that states one number (see `quantities`).
"""

import functools
import re
from fractions import Fraction

from pods_jax.errors import UserError
from pods_jax.rewards.extract import final_answer
from pods_jax.rewards.grammar.words import leading_scale
from pods_jax.rewards.quantities import is_harmless, is_unit, stated_number
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register


def check(gold: str) -> None:
    """See `Verifier`."""
    _expected(gold)


@register("gsm8k", bounded=True, check=check)
def verify(output: str, gold: str) -> Verdict:
    """Compares two numbers.

    Raises:
      UserError: the gold is not a number.
    """
    expected = _expected(gold)
    stated = _stated(final_answer(output) or "")
    return no_answer() if stated is None else compared(stated == expected, str(stated))


def _stated(answer: str) -> Fraction | None:
    number = parse_number(answer)
    return parse_number(stated_number(_tidy(answer)) or "") if number is None else number


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


def parse_number(text: str) -> Fraction | None:
    """The number that `text` states, by the rules above; None if it does not state exactly one."""
    if len(text) > MAX_CHARS or _COMPARISON.search(text):
        return None
    *before, last = _tidy(text).split("\n")
    return _equation(last) if all(map(_is_true_calculation, before)) else None


def _is_true_calculation(line: str) -> bool:
    return "=" in line and not any(map(_is_name, line.split("="))) and _equation(line) is not None


def _equation(line: str) -> Fraction | None:
    """The number after the last "=", if a name, or a calculation of that value, stands before each "="."""
    *terms, last = line.split("=")
    value = _quantity(last.strip())
    return value if all(_is_name(term) or calculated(term) == value for term in terms) else None


def _is_name(text: str) -> bool:
    """Whether a text before "=" is empty, a variable, or words that do not change the number."""
    words = text.split()
    return (len(words) == 1 and len(words[0]) == 1 and words[0].isalpha()) or all(map(is_harmless, words))


def _quantity(text: str) -> Fraction | None:
    """The number of "5", "-1/2", "1,200 dollars", "1.5 million miles"."""
    match = _NUMBER.fullmatch(text)
    if match is None or sum(map(str.isdigit, text)) > MAX_DIGITS or not int(match["denominator"] or 1):
        return None
    numerator = Fraction(match["sign"] + re.sub("[, ]", "", match["digits"]) + match["decimals"])
    words = match["unit"].replace("/", " /").strip(" %°.()").split()
    scale, units = leading_scale([word.lower() for word in words])
    value = numerator / int(match["denominator"] or 1) * scale
    return value if is_unit(" ".join(words[len(words) - len(units) :]), value) else None


def _tidy(text: str) -> str:
    """The text in plain characters, without LaTeX, currency or quotation around the number."""
    text = text.translate(_CHARACTERS)
    for pattern, replacement in _DECORATION:
        text = pattern.sub(replacement, text)
    return text.strip(" \t\r\n*`\"'")


# ---------------------------------------------------------------- calculations


MAX_NESTING = 20
MAX_SYMBOLS = 60

_UNITS = re.compile(r"/[^\W\d_]{2,}|(?!\bx\b)[^\W\d_]+|[%$]")
_SYMBOL = re.compile(r"\s*([0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+|[-+*/()])")
_SIGNS = str.maketrans({"·": "*", "⋅": "*", "÷": "/", "x": "*"})


def calculated(text: str) -> Fraction | None:
    """The value of a sum of products, without its units ("9 eggs/day * $2/egg" is 18); None for any other text."""
    text = text.replace("\\times", "*").replace("\\cdot", "*").replace("×", "*")
    if not all(is_harmless(word) for word in _UNITS.findall(text) if word not in "%$"):
        return None
    plain = _UNITS.sub(" ", text).translate(_SIGNS).rstrip()
    symbols = _SYMBOL.findall(plain)
    if len(plain) > MAX_CHARS or len(symbols) > MAX_SYMBOLS or _SYMBOL.sub("", plain):
        return None
    try:
        value, rest = _sum(symbols, 0)
    except (ArithmeticError, IndexError, ValueError):
        return None
    return None if rest else value


def _sum(symbols: list[str], depth: int) -> tuple[Fraction, list[str]]:
    value, rest = _product(symbols, depth)
    while rest and rest[0] in "+-":
        term, after = _product(rest[1:], depth)
        value = value + term if rest[0] == "+" else value - term
        rest = after
    return value, rest


def _product(symbols: list[str], depth: int) -> tuple[Fraction, list[str]]:
    value, rest = _factor(symbols, depth)
    while rest and rest[0] in "*/":
        factor, after = _factor(rest[1:], depth)
        value = value * factor if rest[0] == "*" else value / factor
        rest = after
    return value, rest


def _factor(symbols: list[str], depth: int) -> tuple[Fraction, list[str]]:
    """Raises IndexError, ValueError or ArithmeticError where no factor begins."""
    first = symbols[0]
    rest = symbols[1:]
    if depth > MAX_NESTING:
        raise ValueError("nested too deeply")
    if first == "-":
        value, rest = _factor(rest, depth + 1)
        return -value, rest
    if first == "(":
        value, rest = _sum(rest, depth + 1)
        if rest[0] != ")":
            raise ValueError("unbalanced")
        return value, rest[1:]
    return Fraction(first.replace(",", "")), rest
