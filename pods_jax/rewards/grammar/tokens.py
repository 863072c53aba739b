r"""LaTeX or plain text -> tokens. Layout (spacing, sizes, dollars, \left) is dropped; nothing is guessed."""

import re
from typing import NamedTuple

from pods_jax.rewards.grammar.words import UNIT_NAMES

MAX_CHARS = 2_000
MAX_TOKENS = 600


class Unparsable(Exception):
    """The text is not an answer that the grammar knows, or is larger than its limits."""


class Token(NamedTuple):
    """kind: "number", "name" (letters), "text" (words), "command", "op", "begin", "end", "row" or "separator".

    The parser adds "letters", what is left of a name that is a product.
    """

    kind: str
    text: str


_CHARACTERS = str.maketrans(
    dict(zip("−–—‐‑﹣", "-" * 6, strict=True))
    | dict.fromkeys("\u00a0\u2009\u202f\u2002\u2003\u200a\u3000", " ")
    | {c: rf"^{{{n}}}" for n, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    | {c: f"_{n}" for n, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
    | {c: rf"\frac{{{a}}}{{{b}}}" for c, a, b in (("½", 1, 2), ("⅓", 1, 3), ("⅔", 2, 3), ("¼", 1, 4), ("¾", 3, 4))}
    | {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    | {
        "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "√": r"\sqrt ",
        "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
        "±": r"\pm ", "∓": r"\mp ", "°": r"^\circ ", "∅": r"\emptyset ", "θ": r"\theta ", "α": r"\alpha ",
        "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "φ": r"\phi ", "ω": r"\omega ", "ℝ": r"\reals ",
        "≈": r"\approx ", "′": "'", "’": "'", "€": "$", "£": "$", "\u200b": "", "\ufeff": "",
    }
)  # fmt: skip
_REALS = re.compile(r"\\mathbb\s?\{?R\}?(?![A-Za-z])")
_THIN_GROUPS = re.compile(r"(?<=[0-9])(?:\{,\}|,\\!|\{,\\!\})\s?(?=[0-9]{3}(?![0-9]))")
_TOKEN = re.compile(
    r"""(?P<row>\\\\|\\cr(?![A-Za-z]))
    |(?P<skip>\s+|~|\$|\\[,;:!>()\[\]\s]
      |\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\.?
      |\\(?:hspace|vspace|phantom|hphantom|vphantom|color)\*?\s?\{[^{}]*\}|\\checkmark(?![A-Za-z])
      |\\(?:displaystyle|textstyle|limits|nolimits|quad|qquad|rm|bf|it)(?![A-Za-z]))
    |(?P<begin>\\begin\s?\{[a-z]+\*?\}(?:\{[lcr|\s]*\})?)|(?P<end>\\end\s?\{[a-z]+\*?\})
    |(?P<words>\\(?:text|textbf|textit|textrm|textnormal|texttt|mathrm|mathsf|mbox|hbox|operatorname\*?)\s?
      \{(?P<inner>(?:[^{}]|\{[^{}]*\})*)\})
    |(?P<styled>\\(?:mathbf|mathit|mathbb|mathcal|underline|boldsymbol|bm|boxed|fbox|ensuremath)\s?
      \{(?P<content>(?:[^{}]|\{[^{}]*\})*)\})
    |(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,3}(?:(?:\ |\\,|\\\ )[0-9]{3})+(?![0-9])|[0-9]+)
      (?:\.[0-9]*(?=\\(?:overline|bar|dot)\s?[{])|\.[0-9]+|\.(?=\s?/))?(?:[eE][-+]?[0-9]{1,4}(?![\w.]))?|\.[0-9]+)
    |(?P<name>[A-Za-z]+)
    |(?P<command>\\(?:[A-Za-z]+|[{}|%$]))
    |(?P<op><=|>=|!!+|!=|\*\*|[-+*/^_=<>()\[\]{},;:|!%'&.])
    """,
    re.VERBOSE,
)
_PLAIN_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,4}(?![\w.]))?|\.[0-9]+")
_OPENING, _CLOSING = frozenset({"(", "[", r"\{"}), frozenset({")", "]", r"\}"})
_JOINS = frozenset({"and", "or", ", and", ", or", "and/or"})
_ALIASES = {"**": "^", r"\lbrack": "[", r"\rbrack": "]", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\%": "%",
            r"\langle": "(", r"\rangle": ")", r"\lparen": "(", r"\rparen": ")", r"\lvert": "|", r"\rvert": "|",
            r"\vert": "|", r"\colon": ":", r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac",
            r"\nicefrac": r"\frac", r"\sfrac": r"\frac",
            r"\dbinom": r"\binom", r"\tbinom": r"\binom", r"\land": ",", r"\lor": ","}  # fmt: skip


def tokenize(text: str) -> list[Token]:
    """The tokens of one answer.

    Commas in threes join digits outside of brackets (`1,234`), and separate them inside (`(1,234)` is a pair).

    Raises:
      Unparsable: for a text that is too long or holds a character that no answer needs.
    """
    if len(text) > MAX_CHARS:
        raise Unparsable("too long")
    return _tokens(_tidy(text), 0)


def _tidy(text: str) -> str:
    text = text.translate(_CHARACTERS).strip()
    text = _REALS.sub(r"\\reals ", text)
    text = _THIN_GROUPS.sub("", text).removesuffix("\\,").removesuffix("\\")
    return text.strip('*`"').strip().rstrip(".,;: ").lstrip(":")


def _tokens(text: str, nesting: int) -> list[Token]:
    tokens: list[Token] = []
    place = depth = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or nesting > 3 or len(tokens) > MAX_TOKENS:
            raise Unparsable(f"unknown character {text[place]!r}" if match is None else "too long")
        if match.lastgroup == "number" and depth and "," in match[0]:
            match = _PLAIN_NUMBER.match(text, place)
            tokens.append(Token("number", match[0]))
        else:
            tokens += _of_match(match, nesting)
        depth += (match[0] in _OPENING) - (match[0] in _CLOSING)
        place = match.end()
    return tokens


def _of_match(match: re.Match, nesting: int) -> list[Token]:
    if match["skip"]:
        return []
    if match["words"]:
        return _words(match["inner"], nesting)
    if match["styled"]:
        return _tokens(match["content"], nesting + 1)
    kind, text = match.lastgroup, match[0]
    if kind == "number":
        return [Token(kind, re.sub(r"[,\s\\]", "", text))]
    if kind == "name" and text in ("and", "or"):
        return [Token("separator", text)]
    text = _ALIASES.get(text, text)
    if kind == "command" and not text.startswith("\\"):
        kind = "op"
    return [Token(kind, text)]


def _words(inner: str, nesting: int) -> list[Token]:
    r"""The contents of \text and its kin: words as one token; what holds mathematics as if it stood outside."""
    words = " ".join(inner.split())
    if words.lower() in _JOINS:
        return [Token("separator", words.lower())]
    bare = words.strip("().")
    if bare in UNIT_NAMES:
        return [Token("text", bare)]
    if len(bare) <= 1 or any(c.isdigit() or c in "\\$=<>^+{" for c in words):
        return _tokens(_tidy(bare if len(bare) == 1 else inner), nesting + 1)
    return [Token("text", words.strip(" .,;:()").lower())]
