"""Tokens -> tree, by recursive descent. Every loop takes a token, nesting and height are limited: cost is bounded."""

import re
from collections.abc import Callable
from fractions import Fraction

from pods_jax.rewards.grammar.determinant import determinant
from pods_jax.rewards.grammar.nodes import (
    BaseNumber,
    Call,
    Interval,
    Items,
    Matrix,
    Node,
    Number,
    Quantity,
    Relation,
    Symbol,
    Text,
    height,
)
from pods_jax.rewards.grammar.tokens import MAX_CHARS, Token, Unparsable, tokenize
from pods_jax.rewards.grammar.words import FUNCTIONS, INVERSES, UNIT_NAMES, canonical_unit, is_word, leading_scale

__all__ = ["Unparsable", "parse"]

MAX_DEPTH = 16
MAX_HEIGHT = 80
MAX_DIGITS = 1_000

_RELATIONS = {"=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", r"\le": "<=", r"\leq": "<=",
              r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\lt": "<", r"\gt": ">",
              r"\ne": "!=", r"\neq": "!=", r"\in": "in", r"\equiv": "="}  # fmt: skip
_PRODUCTS = {"*": "mul", r"\cdot": "mul", r"\times": "mul", r"\ast": "mul", "/": "div", r"\div": "div"}
_SUMS = {"+": "add", "-": "sub", r"\pm": "pm", r"\mp": "mp"}
_POSTFIXES = {"!": "factorial", "!!": "double factorial", "%": "percent"}
_SEPARATORS = frozenset({",", ";", "separator"})
_CLOSERS = {"(": (")", "]"), "[": (")", "]"), r"\{": (r"\}",)}
_REALS = Interval(Call("neg", (Call("inf"),)), Call("inf"), False, False)
_CONSTANTS = {r"\pi": Call("pi"), r"\infty": Call("inf"), r"\imath": Call("i"), r"\reals": _REALS,
              r"\emptyset": Items("set", ()), r"\varnothing": Items("set", ())}  # fmt: skip
_WORD_CONSTANTS = {"e": Call("e"), "i": Call("i"), "pi": Call("pi"), "infinity": Call("inf"), "inf": Call("inf"),
                   "infty": Call("inf")}  # fmt: skip
_GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma tau phi varphi "
    "chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar"
)
_ACCENTS = frozenset({r"\vec", r"\overline", r"\bar", r"\hat", r"\tilde", r"\dot", r"\overrightarrow", r"\widehat",
                      r"\mathbf"})  # fmt: skip
_FENCES = {r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil")}
_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "vmatrix"})
_CROSS = Token("name", "x")  # between two numbers
_END = Token("finish", "")

_TIME = re.compile(r"(?:[01]?[0-9]|2[0-4]):[0-5][0-9]")
_BASE = re.compile(
    r"\(?(?:\\(?:text|mathrm)\s?\{)?(?P<digits>-?[0-9A-F]+(?:\.[0-9A-F]+)?)\}?\)?\s?_\s?\{?\s?(?:\\(?:text|mathrm)\s?\{)?"
    r"(?P<base>[0-9]{1,2}|[a-z]+)\s?\}{0,2}"
)
_BASES = "two three four five six seven eight nine ten eleven twelve"
_BASE_WORDS = dict(zip(_BASES.split(), range(2, 13), strict=True))
_BASE_WORDS |= {"sixteen": 16, "hex": 16}


def parse(text: str) -> Node:
    """The tree of an answer.

    Raises:
      Unparsable: where the grammar ends, or a limit on length, digits or nesting is passed.
    """
    literal = _base_literal(text.strip(" $.")) if "_" in text and len(text) <= MAX_CHARS else None
    if literal is not None:
        return literal
    parser = _Parser(tokenize(text))
    node = parser.answer()
    parser.expect("")
    if height(node) > MAX_HEIGHT:
        raise Unparsable("too many terms")
    return node


def _base_literal(text: str) -> BaseNumber | None:
    """Digits with a base as subscript, `52_8` or `1A_{16}`."""
    match = _BASE.fullmatch(text)
    return _base_number(match["digits"], match["base"]) if match else None


def _base_number(digits: str, base_name: str) -> BaseNumber | None:
    """None if these are no digits in that base, or a letter with an index."""
    base = int(base_name) if base_name.isdigit() else _BASE_WORDS.get(base_name, 0)
    bare = digits.lstrip("-").replace(".", "")
    if len(bare) > MAX_DIGITS or not 2 <= base <= 36 or not all(int(digit, 36) < base for digit in bare):
        return None
    return BaseNumber(digits.lstrip("0") or "0", base) if len(bare) > 1 or bare.isdigit() else None


class _Parser:
    """One pass over the tokens. Methods are named after what they read; each raises `Unparsable` if it is not there."""

    def __init__(self, tokens: list[Token]):
        self.tokens, self.place, self.depth, self.bars = tokens, 0, 0, 0

    # ------------------------------------------------------------ reading tokens

    def peek(self, ahead: int = 0) -> Token:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else _END

    def take(self) -> Token:
        token = self.peek()
        self.place += 1
        return token

    def accept(self, *texts: str) -> bool:
        """Takes the next token if it is one of these operators, commands or environments."""
        if self.peek().text in texts and self.peek().kind not in ("name", "text", "number", "finish"):
            self.place += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if self.take().text != text:
            raise Unparsable(f"expected {text or 'the end'!r}")

    def split(self, length: int) -> str:
        """Takes the first characters of the next token; what is left of a run of digits or letters stays a token."""
        kind, text = self.take()
        if not text.isalnum() or (kind == "number" and not text.isdigit()):
            return text
        if text[length:]:
            self.place -= 1
            self.tokens[self.place] = Token(kind, text[length:])
        return text[:length]

    def nested(self, read: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        node = read()
        self.depth -= 1
        return node

    # ------------------------------------------------------------ answers, relations, quantities

    def answer(self) -> Node:
        """A list of relations; one alone stands for itself."""
        items = self.items()
        return items[0] if len(items) == 1 else Items("list", tuple(items))

    def items(self) -> list[Node]:
        items = [self.relation()]
        while self.separated():
            items.append(self.relation())
        return items

    def separated(self) -> bool:
        """Takes a comma, semicolon, "and", "or", or a comma followed by one of these."""
        found = False
        while self.peek().text in _SEPARATORS or self.peek().kind == "separator":
            if found and self.peek().kind != "separator":
                raise Unparsable("empty item")
            self.place, found = self.place + 1, True
        return found

    def relation(self) -> Node:
        sides, operators = [self.operand()], []
        while self.peek().text in _RELATIONS:
            operators.append(_RELATIONS[self.take().text])
            if self.accept("="):  # "< =" and "= =" are slips of the pen
                raise Unparsable("two relations in a row")
            sides.append(self.operand())
        return Relation(tuple(operators), tuple(sides)) if operators else sides[0]

    def operand(self) -> Node:
        """A union of sets, a ratio, a time of day, or a quantity."""
        if self.accept(r"\$"):
            return self.with_unit(self.sum(), "dollar")
        if self.peek().text == "-" and self.peek(1).text == r"\$":
            self.skip(2)
            return self.with_unit(Call("neg", (self.sum(),)), "dollar")
        start = self.place
        value = self.sum()
        operator = self.peek().text
        if operator == r"\cup":
            return Items("union", self.joined(value, operator))
        if operator == ":":
            parts = self.joined(value, operator)
            written = "".join(token.text for token in self.tokens[start : self.place])
            return Call("time" if _TIME.fullmatch(written) else "ratio", parts)
        return self.with_unit(value, "")

    def joined(self, first: Node, operator: str) -> tuple[Node, ...]:
        parts = [first]
        while self.accept(operator):
            parts.append(self.sum())
        return tuple(parts)

    def with_unit(self, value: Node, currency: str) -> Node:
        """The value with the words and unit letters that follow it."""
        written = []
        while self.peek().kind == "text" or (self.peek().kind == "name" and _is_unit(self.peek().text)):
            written.append(self.take().text + self.unit_power())
            if self.accept("/"):
                written.append("/")
        scale, words = leading_scale(" ".join(written).lower().split())
        if scale > 1:
            value = Call("mul", (value, Number(Fraction(scale))))
        unit = " ".join(words)
        if unit and (isinstance(value, Items | Interval | Text) or canonical_unit(unit) is None):
            raise Unparsable("words that are no unit")
        unit = canonical_unit(unit) if unit else currency
        if unit in ("degree", "radian", "percent"):
            return Call(unit, (value,))
        return Quantity(value, unit) if unit else value

    def unit_power(self) -> str:
        if not self.accept("^"):
            return ""
        sign = self.argument()
        if not isinstance(sign, Number) or sign.value.denominator != 1:
            raise Unparsable("power of a unit")
        return f"^{sign.value}"

    # ------------------------------------------------------------ arithmetic

    def sum(self) -> Node:
        total = self.signed(self.term)
        while self.peek().text in _SUMS and self.peek().kind != "text":
            name = _SUMS[self.take().text]
            right = self.signed(self.term)
            total = Call("add", (total, Call("neg", (right,)))) if name == "sub" else Call(name, (total, right))
        return total

    def signed(self, read: Callable[[], Node]) -> Node:
        if self.peek().text not in _SUMS or self.peek().kind == "text":
            return read()
        name = _SUMS[self.take().text]
        value = self.nested(lambda: self.signed(read))
        if name == "add":
            return value
        if name == "sub":
            return _negative(value)
        return Call(name, (Number(Fraction(0)), value))

    def term(self) -> Node:
        product = self.power()
        while True:
            operator = _PRODUCTS.get(self.peek().text)
            if self.peek() == _CROSS and self.peek(1).kind == "number":
                operator = "mul"
            if operator:
                self.take()
                product = Call(operator, (product, self.signed(self.power)))
            elif self.starts_factor():
                product = Call("mul", (product, self.power()))
            else:
                return product

    def starts_factor(self) -> bool:
        """Whether the next token multiplies what stands before it without a sign between them."""
        kind, text = self.peek()
        if kind == "letters":
            return True
        if kind == "name":
            return not _is_unit(text) or len(text) == 1
        if text == "|":
            return not self.bars
        return text in ("(", "[", "{") or (kind == "command" and self.is_primary_command(text))

    def is_primary_command(self, text: str) -> bool:
        return (
            text in (r"\frac", r"\sqrt", r"\binom")
            or text in _CONSTANTS
            or text in _ACCENTS
            or text in _FENCES
            or text[1:] in FUNCTIONS
            or text[1:] in _GREEK.split()
        )

    def power(self) -> Node:
        base = self.postfix()
        if not self.accept("^"):
            return base
        if self.accept(r"\circ") or (self.peek().text == "{" and self.peek(1).text == r"\circ" and self.skip(3)):
            return Call("degree", (base,))
        return self.factorials(Call("pow", (base, self.exponent())))

    def skip(self, count: int) -> bool:
        self.place += count
        return True

    def exponent(self) -> Node:
        """A group, or what a writer means without one: `x^12` is the twelfth power, `x^ab` is x^a b."""
        return self.nested(
            lambda: self.signed(lambda: self.power() if self.peek().text != "{" else self.towered(self.group()))
        )

    def towered(self, node: Node) -> Node:
        return Call("pow", (node, self.exponent())) if self.accept("^") else node

    def postfix(self) -> Node:
        node = self.primary()
        while self.accept("'"):
            node = Symbol(f"{node.name}'") if isinstance(node, Symbol) else _fail("prime")
        return self.factorials(node)

    def factorials(self, node: Node) -> Node:
        while self.peek().text in _POSTFIXES:
            node = Call(_POSTFIXES[self.take().text], (node,))
        return node

    # ------------------------------------------------------------ primaries

    def primary(self) -> Node:
        kind, text = self.peek()
        if kind == "number":
            return self.number()
        if kind in ("name", "letters"):
            return self.name()
        if kind == "text":
            return self.text()
        if text in _CLOSERS:
            return self.nested(self.collection)
        if text == "{":
            return self.nested(self.group)
        if text == "|":
            return self.nested(self.absolute)
        if kind == "begin":
            return self.nested(self.matrix)
        return self.nested(self.command)

    def number(self) -> Node:
        """A number; also a mixed number, and a decimal with a period under a bar."""
        text = self.take().text
        if len(text) > MAX_DIGITS:
            raise Unparsable("too many digits")
        if self.peek().text in (r"\overline", r"\bar", r"\dot") and "." in text:
            return self.repeating(text)
        if self.peek().kind == "name" and self.peek().text.isupper() and self.peek(1).text == "_":
            text += self.take().text
        if self.accept("_"):
            return self.in_base(text)
        value = Fraction(text)
        if text.isdigit():
            value += self.mixed_part()
        if self.peek().kind == "number":
            raise Unparsable("two numbers in a row")
        return Number(value)

    def in_base(self, digits: str) -> Node:
        base = self.argument_digits() if self.peek().text == "{" else self.take().text
        return _base_number(digits, base) or _fail("base")

    def mixed_part(self) -> Fraction:
        r"""The proper fraction that follows a whole number, as `1/2` or `\frac{1}{2}`; 0 if there is none."""
        above, slash, below = (self.peek(ahead) for ahead in range(3))
        if above.kind == below.kind == "number" and slash.text == "/":
            start, fraction = self.place + 3, (above.text, below.text)
        else:
            start, fraction = self.plain_fraction()
        if not all(map(str.isdigit, fraction)) or not 0 < int(fraction[0]) < int(fraction[1]):
            return Fraction(0)
        self.place = start
        return Fraction(int(fraction[0]), int(fraction[1]))

    def plain_fraction(self) -> tuple[int, tuple[str, str]]:
        r"""Where `\frac{a}{b}` with two numbers would end, and these; ("", "") if something else stands here."""
        texts = [self.peek(ahead).text for ahead in range(7)]
        if texts[0] != r"\frac":
            return self.place, ("", "")
        if (texts[1], texts[3], texts[4], texts[6]) == ("{", "}", "{", "}"):
            return self.place + 7, (texts[2], texts[5])
        if len(texts[1]) == 2 and texts[1].isdigit():
            return self.place + 2, (texts[1][0], texts[1][1])
        return self.place, ("", "")

    def repeating(self, text: str) -> Node:
        r"""`0.1\overline{6}`: the digits under the bar repeat."""
        before, _, fixed = text.partition(".")
        self.take()
        period = self.argument_digits()
        shift = 10 ** len(fixed)
        return Number(Fraction(before + fixed) / shift + Fraction(int(period), shift * (10 ** len(period) - 1)))

    def argument_digits(self) -> str:
        self.expect("{")
        kind, text = self.take()
        if kind != "number" or not text.isdigit():
            raise Unparsable("period of a decimal")
        self.expect("}")
        return text

    def name(self) -> Node:
        """A constant, a function, a word, or the first letter of a product of variables."""
        kind, text = self.peek()
        if text in _WORD_CONSTANTS and not (len(text) == 1 and self.peek(1).text == "_"):
            self.take()
            return _WORD_CONSTANTS[text]
        if text == "sqrt":
            self.take()
            return self.root()
        known = next((n for n in (len(text), len(text) - 1) if text[:n] in FUNCTIONS and len(text) > 1), None)
        if known:
            return self.nested(lambda: self.function(self.split(known)))
        if text.startswith("pi") and len(text) == 3:
            return _WORD_CONSTANTS[self.split(2)]
        if kind == "name" and is_word(text):
            return self.text()
        self.tokens[self.place] = Token("letters", text)  # no units or words: those that are left are factors too
        letter = self.split(1)
        return _WORD_CONSTANTS.get(letter) or self.subscripted(letter)

    def text(self) -> Node:
        """Consecutive words; some are constants."""
        words = [self.take().text.lower()]
        while self.peek().kind == "text" or (self.peek().kind == "name" and len(self.peek().text) > 1):
            words.append(self.take().text.lower())
        return _WORD_CONSTANTS.get(" ".join(words)) or Text(" ".join(words))

    def subscripted(self, name: str) -> Node:
        if not self.accept("_"):
            return Symbol(name)
        if self.accept("{"):
            parts = []
            while not self.accept("}"):
                parts.append(self.take().text or _fail("open subscript"))
            return Symbol(f"{name}_{''.join(parts)}")
        return Symbol(f"{name}_{self.split(1)}")

    def collection(self) -> Node:
        r"""What stands in (), [] or \{\}: a group, a tuple, an interval or a set."""
        opening = self.take().text
        bars, self.bars = self.bars, 0
        items = () if self.peek().text == r"\}" else tuple(self.items())
        self.bars = bars
        closing = self.take().text
        if closing not in _CLOSERS[opening]:
            raise Unparsable("unbalanced brackets")
        if opening == r"\{":
            return Items("set", items)
        matched = (opening, closing) in (("(", ")"), ("[", "]"))
        if len(items) == 1 and matched:
            return items[0]
        if len(items) == 2 and (opening, closing) != ("(", ")"):
            return Interval(*items, opening == "[", closing == "]")
        if not matched:
            raise Unparsable("unbalanced brackets")
        return Items("tuple", items)

    def group(self) -> Node:
        """A TeX group: braces that only hold together."""
        self.expect("{")
        bars, self.bars = self.bars, 0
        node = self.answer()
        if self.accept(r"\over"):
            node = Call("div", (node, self.answer()))
        self.bars = bars
        self.expect("}")
        return node

    def absolute(self) -> Node:
        self.expect("|")
        self.bars += 1
        inside = self.sum()
        self.bars -= 1
        self.expect("|")
        return Call("abs", (inside,))

    def command(self) -> Node:
        kind, text = self.take()
        if kind != "command":
            raise Unparsable(f"unexpected {text!r}")
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text == r"\frac":
            return Call("div", (self.argument(), self.argument()))
        if text == r"\binom":
            return Call("binom", (self.argument(), self.argument()))
        if text == r"\sqrt":
            return self.root()
        if text in _ACCENTS:
            return self.accented(text)
        if text in _FENCES:
            closing, name = _FENCES[text]
            inside = self.sum()
            self.expect(closing)
            return Call(name, (inside,))
        if text[1:] in FUNCTIONS:
            return self.function(text[1:])
        if text[1:] in _GREEK.split():
            return self.subscripted(text[1:])
        raise Unparsable(f"unknown command {text}")

    def argument(self) -> Node:
        r"""A group, or the one character that TeX would take."""
        kind, text = self.peek()
        if text == "{":
            return self.nested(self.group)
        if kind == "number":
            return Number(Fraction(self.split(1)))
        if kind == "name":
            letter = self.split(1)
            return _WORD_CONSTANTS.get(letter, Symbol(letter))
        return self.nested(self.signed_command)

    def signed_command(self) -> Node:
        return self.signed(self.argument) if self.peek().text == "-" else self.primary()

    def root(self) -> Node:
        degree = Number(Fraction(2))
        if self.accept("["):
            degree = self.sum()
            self.expect("]")
        return Call("root", (self.primary(), degree))

    def accented(self, accent: str) -> Node:
        """A letter or two with a mark above them is a name of its own."""
        inside = self.tokens[self.place : self.place + 3]
        name = "".join(token.text for token in inside[1:2]) if inside and inside[0].text == "{" else ""
        if not name.isalpha() or inside[2].text != "}":
            raise Unparsable("mark above a formula")
        self.place += 3
        return Symbol(f"{accent[1:]} {name}")

    def function(self, name: str) -> Node:
        r"""A function with its base and exponent (`\log_2 8`, `\sin^2 x`) and its argument."""
        name, base, exponent = FUNCTIONS[name], None, None
        if name == "log" and self.accept("_"):
            base = self.argument()
        if self.accept("^"):
            exponent = self.exponent()
        if exponent == Call("neg", (Number(Fraction(1)),)) and name in INVERSES:
            name, exponent = INVERSES[name], None
        value = self.function_arguments()
        if name == "det" and len(value) == 1 and isinstance(value[0], Matrix):
            call = determinant(value[0])
        else:
            call = Call("log", (*value, base)) if base else Call(name, value)
        return Call("pow", (call, exponent)) if exponent else call

    def function_arguments(self) -> tuple[Node, ...]:
        """What is in brackets, or else the product that follows up to the next function or operator."""
        if self.peek().text in ("(", "[", "{", "|"):
            inside = self.primary()
            return inside.items if isinstance(inside, Items) and inside.kind in ("tuple", "list") else (inside,)
        product = self.power()
        while self.starts_factor() and not self.starts_function():
            product = Call("mul", (product, self.power()))
        return (product,)

    def starts_function(self) -> bool:
        text = self.peek().text
        return text in "([{|" or text.lstrip("\\") in FUNCTIONS

    def matrix(self) -> Node:
        name = re.sub(r"\W.*", "", self.take().text.partition("{")[2])
        if name not in _MATRICES:
            raise Unparsable(f"environment {name}")
        rows, row = [], [self.sum()]
        while self.peek().kind != "end":
            if self.accept("&"):
                row.append(self.sum())
            elif self.take().kind == "row":
                rows, row = [*rows, tuple(row)], []
                if self.peek().kind != "end":
                    row = [self.sum()]
            else:
                raise Unparsable("matrix")
        self.take()
        rows += [tuple(row)] if row else []
        if len({len(row) for row in rows}) != 1:
            raise Unparsable("ragged matrix")
        return determinant(Matrix(tuple(rows))) if name == "vmatrix" else Matrix(tuple(rows))


def _negative(node: Node) -> Node:
    """With the sign on the digits of a number that states its base."""
    if isinstance(node, BaseNumber) and not node.digits.startswith("-"):
        return BaseNumber(f"-{node.digits}", node.base)
    return Call("neg", (node,))


def _is_unit(letters: str) -> bool:
    """Whether a run of letters after a value is a unit rather than a factor."""
    if letters in UNIT_NAMES:
        return True
    known = letters in FUNCTIONS or letters[:-1] in FUNCTIONS or letters in ("sqrt", *_WORD_CONSTANTS)
    return (is_word(letters) or len(letters) > 3) and not known


def _fail(what: str):
    raise Unparsable(what)
