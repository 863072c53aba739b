r"""LaTeX or plain text -> tokens. Layout (spacing, sizes, dollars, \left) is dropped; nothing is guessed."""

import re
from typing import NamedTuple

from pods_jax.rewards.grammar.units import symbol_or_name
from pods_jax.rewards.grammar.words import FUNCTIONS

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


_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5",
              "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
              "⅑": "1/9", "⅒": "1/10", "↉": "0/3"}  # fmt: skip
_COMMANDS = {
    "×": "times", "⋅": "cdot", "·": "cdot", "∙": "cdot", "•": "cdot", "÷": "div", "π": "pi", "√": "sqrt",
    "∞": "infty", "≤": "le", "≥": "ge", "≠": "ne", "∪": "cup", "∩": "cap", "∈": "in", "±": "pm", "∓": "mp",
    "∅": "emptyset", "θ": "theta", "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "λ": "lambda",
    "μ": "mu", "µ": "mu", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ϕ": "phi", "ω": "omega", "Δ": "Delta",
    "Ω": "Omega", "Å": "AA", "ℝ": "reals", "ℤ": "integers", "ℕ": "naturals", "ℚ": "rationals", "ℂ": "complexes",
    "≈": "approx", "≡": "equiv", "→": "to", "↦": "mapsto", "∖": "setminus", "∣": "mid", "∀": "forall", "∂": "partial",
    "∑": "sum", "∏": "prod", "∫": "int", "⌊": "lfloor", "⌋": "rfloor", "⌈": "lceil", "⌉": "rceil", "⟨": "langle",
    "⟩": "rangle", "ℓ": "ell", "ħ": "hbar", "⊙": "odot",
}  # fmt: skip
_CHARACTERS = str.maketrans(
    dict(zip("−–—‐‑﹣", "-" * 6, strict=True))
    | dict.fromkeys("\u00a0\u2009\u202f\u2002\u2003\u200a\u3000", " ")
    | {c: rf"^{{{n}}}" for n, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    | {c: f"_{n}" for n, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
    | {c: r"\frac{" + value.replace("/", "}{") + "}" for c, value in _FRACTIONS.items()}
    | {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    | {c: rf"\{name} " for c, name in _COMMANDS.items()}
    | {"°": r"^\circ ", "℃": r"^\circ C", "℉": r"^\circ F", "′": "'", "’": "'", "€": "$",
       "£": "$", "\u200b": "", "\ufeff": ""}
)  # fmt: skip
_NUMBER_SETS = {"R": r"\reals ", "Z": r"\integers ", "N": r"\naturals ", "Q": r"\rationals ", "C": r"\complexes "}
_NUMBER_SET = re.compile(r"\\(?:mathbb|mathbf|Bbb)\s?(?:\{\s?([RZNQC])\s?\}|([RZNQC])(?![A-Za-z]))")
_PRIMES = re.compile(r"\^\s?(?:\{\s?((?:\\prime\s?|')+)\}|((?:\\prime(?![A-Za-z])\s?)+))")
_MICRO = re.compile(r"(?<=[0-9])\s?[µμ]([A-Za-z]{1,3})(?![A-Za-z])")
_LAST_STOP = re.compile(r"[.,;:\s]+((?:\\[)\]]|\$)+)$")
_MODULES = re.compile(r"\b(?:np|math|numpy|sympy)\.(?=[a-z])")
_THIN_GROUPS = re.compile(r"(?<=[0-9])(?:\{,\}|,\s?\\!|\{,\\!\})\s?(?=[0-9]{3}(?![0-9]))")
_TOKEN = re.compile(
    r"""(?P<row>\\\\|\\cr(?![A-Za-z]))
    |(?P<skip>\s+|~|\$|\\[,;:!>()\[\]\s]
      |\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\.?
      |\\(?:hspace|vspace|phantom|hphantom|vphantom|color)\*?\s?\{[^{}]*\}|\\phantom(?![A-Za-z])|\\checkmark(?![A-Za-z])
      |\\(?:displaystyle|textstyle|limits|nolimits|quad|qquad|rm|bf|it|kern|thinspace)(?![A-Za-z]))
    |(?P<begin>\\begin\s?\{[a-z]+\*?\}(?:\{[lcr|\s]*\})?)|(?P<end>\\end\s?\{[a-z]+\*?\})
    |(?P<words>\\(?P<wrapper>text|textbf|textit|textrm|textnormal|texttt|mathrm|mathsf|mbox|hbox|operatorname\*?)\s?
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
_OPENING = frozenset({"(", "[", r"\{"})
_CLOSING = frozenset({")", "]", r"\}"})
_JOINS = frozenset({"and", "or", ", and", ", or", "and/or"})
_TEXT_JOINS = re.compile(r"\s*[,;]\s*(?:(?:and|or)\s+)?|\s+(?:and|or)\s+")
_ALIASES = {"**": "^", r"\lbrack": "[", r"\rbrack": "]", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\%": "%",
            r"\langle": "(", r"\rangle": ")", r"\lparen": "(", r"\rparen": ")", r"\lvert": "|", r"\rvert": "|",
            r"\vert": "|", r"\colon": ":", r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac",
            r"\nicefrac": r"\frac", r"\sfrac": r"\frac",
            r"\dbinom": r"\binom", r"\tbinom": r"\binom", r"\land": "and", r"\lor": "or", r"\rightarrow": r"\to",
            r"\longrightarrow": r"\to", r"\backslash": r"\setminus", r"\smallsetminus": r"\setminus",
            r"\simeq": r"\approx", r"\doteq": r"\approx", r"\approxeq": r"\approx", r"\R": r"\reals",
            r"\degree": r"\degree", r"\Reals": r"\reals", r"\wedge": "and", r"\vee": "or"}  # fmt: skip


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
    if not text.isascii():
        text = _MICRO.sub(r"\\text{μ\1}", text).translate(_CHARACTERS)
    text = text.strip()
    text = _NUMBER_SET.sub(lambda match: _NUMBER_SETS[match[1] or match[2]], text)
    text = _PRIMES.sub(lambda match: "'" * (match[0].count("prime") + match[0].count("'")), text)
    text = _THIN_GROUPS.sub("", _MODULES.sub("", text)).removesuffix("\\,").removesuffix("\\")
    text = text.strip('*`"').strip().rstrip(".,;: ").lstrip(":")
    return _LAST_STOP.sub(r"\1", text)


def _tokens(text: str, nesting: int) -> list[Token]:
    tokens: list[Token] = []
    place = depth = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or nesting > 3 or len(tokens) > MAX_TOKENS:
            raise Unparsable(f"unknown character {text[place]!r}" if match is None else "too long")
        if match.lastgroup == "number" and depth and "," in match[0]:  # (1,234) is a pair, 1,234 a number
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
        return _words(match["inner"], match["wrapper"], nesting)
    if match["styled"]:
        return _tokens(match["content"], nesting + 1)
    kind = match.lastgroup
    text = match[0]
    if kind == "number":
        return [Token(kind, re.sub(r"[,\s\\]", "", text))]
    text = _ALIASES.get(text, text)
    if text in ("and", "or"):
        return [Token("separator", text)]
    if kind == "command" and not text.startswith("\\"):
        kind = "op"
    return [Token(kind, text)]


def _words(inner: str, wrapper: str, nesting: int) -> list[Token]:
    r"""The contents of \text and its kin: words as one token, lists of them, or mathematics as if it stood outside."""
    words = " ".join(inner.replace("~", " ").split())
    bare = words.strip(" .,;:")
    if words.lower() in _JOINS or words.lower().strip(" ,") in ("and", "or"):
        return [Token("separator", words.lower().strip(" ,"))]
    if bare in FUNCTIONS and wrapper.rstrip("*") in ("operatorname", "mathrm") and bare not in ("min", "lb"):
        return [Token("command", rf"\{bare}")]
    if any(c.isdigit() or c in "\\$=<>^+{}|_%" for c in words):
        return _roman(_tokens(_tidy(inner), nesting + 1))
    tokens: list[Token] = []
    for piece in _TEXT_JOINS.split(bare):
        tokens += [Token("separator", ",")] if tokens else []
        tokens += [Token("text", _unwrapped(piece))] if piece else []
    return tokens


def _roman(tokens: list[Token]) -> list[Token]:
    """The tokens of a \\text, in which names of units are words."""
    return [
        Token("text", token.text) if token.kind == "name" and symbol_or_name(token.text) else token for token in tokens
    ]


def _unwrapped(words: str) -> str:
    """The words without brackets around all of them."""
    inside = words[1:-1]
    return inside.strip() if words[0] + words[-1] == "()" and "(" not in inside else words
