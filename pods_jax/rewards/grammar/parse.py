"""Answers: lists of relations between quantities, sets, words. Limits on length, nesting and height bound the cost."""

import re
from fractions import Fraction

from pods_jax.rewards.grammar.applications import is_applied
from pods_jax.rewards.grammar.bases import base_literal
from pods_jax.rewards.grammar.formulas import WORD_CONSTANTS, Formulas
from pods_jax.rewards.grammar.nodes import Call, Interval, Items, Node, Number, Quantity, Relation, Symbol, Text, height
from pods_jax.rewards.grammar.nodes import symbols as symbols_of
from pods_jax.rewards.grammar.tokens import MAX_CHARS, Unparsable, tokenize
from pods_jax.rewards.grammar.units import read_unit, symbol_or_name
from pods_jax.rewards.grammar.words import FUNCTIONS, is_word, leading_scale

__all__ = ["Unparsable", "parse"]

MAX_HEIGHT = 80

_RELATIONS = {"=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", r"\le": "<=", r"\leq": "<=",
              r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\lt": "<", r"\gt": ">",
              r"\ne": "!=", r"\neq": "!=", r"\in": "in", r"\equiv": "=", r"\approx": "approx",
              r"\mapsto": "maps"}  # fmt: skip
_SET_OPERATORS = {r"\cup": "union", r"\cap": "intersection", r"\setminus": "difference"}
_SEPARATORS = frozenset({",", ";"})
_CLOSERS = {"(": (")", "]"), "[": (")", "]"), r"\{": (r"\}",)}
_SUCH_THAT = frozenset({":", "|", r"\mid", r"\colon"})
_NUMBER_SETS = frozenset({r"\reals", r"\integers", r"\naturals", r"\rationals", r"\complexes"})
_CONDITIONS = frozenset({"for", "where", "with"})
_QUANTIFIERS = frozenset({"all", "any", "every", "each", "some", "an", "arbitrary", "real", "integer", "integers", "is",
                          "number", "numbers", "values", "value", "of", "are", "be", "constant", "a", "the",
                          "constants"})  # fmt: skip
_KINDS = {"integer": Text("integers"), "integers": Text("integers")}
_UNIT_COMMANDS = {r"\mu": "μ", r"\AA": "Å", r"\Omega": "Ω", r"\degree": "°", r"\circ": "°"}
_TIME = re.compile(r"(?:[01]?[0-9]|2[0-4]):[0-5][0-9]")


def parse(text: str) -> Node:
    """The tree of an answer.

    Raises:
      Unparsable: where the grammar ends, or a limit on length, digits or nesting is passed.
    """
    literal = base_literal(text.strip(" $.")) if "_" in text and len(text) <= MAX_CHARS else None
    if literal is not None:
        return literal
    parser = Answers(tokenize(text))
    node = parser.answer()
    parser.expect("")
    if height(node) > MAX_HEIGHT:
        raise Unparsable("too many terms")
    return node


class Answers(Formulas):
    """One pass over the tokens of an answer."""

    # ------------------------------------------------------------ lists and relations

    def answer(self) -> Node:
        """A list of relations; one by itself stands for itself. Inequalities joined by "and" hold together."""
        items, joins = self.items()
        items += self.conditions()
        if len(items) == 1:
            return items[0]
        together = joins == {"and"} and all(isinstance(item, Relation) for item in items)
        kind = "intersection" if together and not any("=" in item.operators for item in items) else "list"
        return Items(kind, tuple(items))

    def items(self) -> tuple[list[Node], set[str]]:
        """The items of a list, and what joins them."""
        self.quantifier()
        items = [self.relation()]
        joins = set()
        while join := self.separator():
            joins.add(join)
            if self.starts_condition():
                break
            items.append(self.relation())
        return items, joins

    def separator(self) -> str:
        """Takes a comma, semicolon, "and", "or", or a comma followed by one of these; the last, or "" for none."""
        found = ""
        while (self.peek().text in _SEPARATORS and self.peek().kind == "op") or self.peek().kind == "separator":
            if found and self.peek().kind != "separator":
                raise Unparsable("empty item")
            found = self.take().text.strip(", ") or ","
        return found

    def relation(self) -> Node:
        if self.accept(r"\approx"):
            return self.operand()
        sides = [self.operand()]
        operators = []
        while self.peek().text in _RELATIONS:
            operators.append(_RELATIONS[self.take().text])
            if self.accept("="):  # "< =" and "= =" are slips of the pen
                raise Unparsable("two relations in a row")
            sides.append(self.operand())
        if operators == ["maps"]:
            return _mapping(*sides)
        if "maps" in operators:
            raise Unparsable("a mapping in a chain")
        return Relation(tuple(operators), tuple(sides)) if operators else sides[0]

    # ------------------------------------------------------------ domains

    def quantifier(self) -> None:
        r"""Passes `\forall x \in \mathbb{R},`."""
        if self.accept(r"\forall"):
            self.index()
            if self.accept(r"\in"):
                self.take()
            self.accept(",", ":")

    def starts_condition(self) -> bool:
        """Whether "for all x", "where k .." or "k is an integer" stands here."""
        kind, text = self.peek()
        first = text.lower().partition(" ")[0]
        follower = self.peek(1).text.lower().split()
        stated = kind == "name" and len(text) == 1 and follower[:1] == ["is"] and follower[-1:] == ["integer"]
        return (kind in ("name", "text") and first in _CONDITIONS) or stated or text == r"\forall"

    def conditions(self) -> list[Node]:
        r""" "for all x", "where k is an integer", `\forall x \in \mathbb{R}`: the domains they state."""
        if not self.starts_condition():
            return []
        self.accept(r"\forall")
        return self.domains()

    def domains(self) -> list[Node]:
        names = []
        stated = None
        while self.peek().kind in ("name", "text", "separator") or self.peek().text in (",", r"\in", *_NUMBER_SETS):
            kind, text = self.take()
            if text in _NUMBER_SETS:
                stated = self.number_set(text)
            for word in text.split() if kind in ("name", "text") else []:
                stated = _KINDS.get(word, stated)
                if len(word) == 1 and word not in ("a",):
                    names.append(Symbol(word))
                elif word.lower() not in _QUANTIFIERS | _CONDITIONS:
                    raise Unparsable("a condition")
        return [Relation(("in",), (name, stated)) for name in names] if stated else []

    def number_set(self, command: str) -> Node:
        return WHOLE_LINE if command == r"\reals" else Text(command[1:])

    # ------------------------------------------------------------ operands

    def operand(self) -> Node:
        """Words, an operation on sets, a ratio, a time of day, or a quantity."""
        words = self.words() if self.depth == 0 else None
        if words is not None:
            return words
        if self.accept(r"\$"):
            return self.with_unit(self.sum(), "dollar")
        if self.peek().text == "-" and self.peek(1).text == r"\$":
            self.skip(2)
            return self.with_unit(Call("neg", (self.sum(),)), "dollar")
        start = self.place
        value = self.sum()
        if self.peek().text in _SET_OPERATORS:
            return self.set_operations(value)
        if self.peek().text == ":" or self.is_ratio_word():
            return self.ratio(value, start)
        return self.with_unit(value, "")

    def set_operations(self, value: Node) -> Node:
        """From left to right; unions of several sets are one."""
        while self.peek().text in _SET_OPERATORS:
            kind = _SET_OPERATORS[self.take().text]
            other = self.sum()
            joined = isinstance(value, Items) and value.kind == kind == "union"
            value = Items(kind, (*value.items, other) if joined else (value, other))
        return value

    def ratio(self, first: Node, start: int) -> Node:
        parts = [first]
        while self.accept(":") or (self.is_ratio_word() and self.skip(1)):
            parts.append(self.sum())
        written = "".join(token.text for token in self.tokens[start : self.place])
        return Call("time" if _TIME.fullmatch(written) else "ratio", tuple(parts))

    def is_ratio_word(self) -> bool:
        return self.peek().kind in ("name", "text") and self.peek().text == "to"

    def words(self) -> Node | None:
        """Letters and words that are a whole item; None for formulas."""
        count = 0
        while self.peek(count).kind in ("name", "text"):
            count += 1
        end = self.peek(count)
        if not count or not (end.kind in ("finish", "separator") or end.text in _SEPARATORS or end.text in _RELATIONS):
            return None
        tokens = self.tokens[self.place : self.place + count]
        letters = "".join(token.text for token in tokens)
        if any(token.kind == "text" for token in tokens):
            measured = tokens[0].kind == "name" and tokens[-1].kind == "text" and len(tokens[-1].text) > 1
            if len(letters) == 1 or (measured and symbol_or_name(tokens[-1].text)):
                return None
            self.skip(count)
            joined = " ".join(token.text for token in tokens).lower()
            return WORD_CONSTANTS.get(joined) or Text(joined)
        if letters in WORD_CONSTANTS or _has_function(letters) or not is_word(letters):
            return None
        self.skip(count)
        return WORD_CONSTANTS.get(letters.lower()) or Text(letters.lower())

    # ------------------------------------------------------------ units

    def with_unit(self, value: Node, currency: str) -> Node:
        """The value with the unit, scale ("million") or counted thing after it."""
        words = [] if self.peek().kind in ("finish", "separator") else self.unit_words(value)
        scale, words = leading_scale(words)
        if scale > 1:
            value = Call("mul", (value, Number(Fraction(scale))))
        text = " ".join(words)
        if text.lower() in ("percent", "percentage", "per cent"):
            return Call("percent", (value,))
        unit = read_unit(text) if text else ""
        if unit is None or (unit and not _may_have_unit(value, words)):
            raise Unparsable("words that are no unit")
        if unit in ("°", "rad"):
            return Call({"°": "degree", "rad": "radian"}[unit], (value,))
        if unit in ("C", "F") and _is_degrees(value):
            return Quantity(_without_degrees(value), f"°{unit}")
        unit = " ".join(filter(None, (currency, unit)))
        return Quantity(value, unit) if unit else value

    def unit_words(self, value: Node) -> list[str]:
        """The tokens of a unit in plain writing, such as ["km", "s", "^-1"]."""
        pieces: list[str] = []
        is_number = not symbols_of(value)
        celsius = _is_degrees(value)
        glue = ""
        while not self.starts_condition():
            kind, text = self.peek()
            if kind == "text" or (kind == "name" and (pieces or (is_number and self.starts_unit()) or celsius)):
                pieces += [glue + word if place == 0 else word for place, word in enumerate(self.take().text.split())]
                glue = ""
                continue
            if kind == "op" and text == "^" and pieces and self.accept("^"):
                if self.accept(r"\circ"):
                    raise Unparsable("degrees of a unit")
                pieces.append(self.unit_power())
            elif kind == "op" and text == "/" and (self.starts_unit() or (pieces and self.divides_unit())):
                pieces.append(self.take().text)
            elif text in (r"\cdot", r"\times", "*", r"\cdotp") and pieces and self.peek(1).kind in ("text", "name"):
                self.take()
                pieces.append("·")
            elif text in ("(", ")") and pieces and (pieces[-1] == "/" or "(" in pieces):
                pieces.append(self.take().text)
            elif text in _UNIT_COMMANDS and (pieces or text in (r"\AA", r"\degree") or self.starts_unit()):
                self.take()
                glue = _UNIT_COMMANDS[text] if text == r"\mu" else pieces.pop() if pieces[-1:] in (["k"], ["M"]) else ""
                pieces += [] if text == r"\mu" else [glue + _UNIT_COMMANDS[text]]
            else:
                break
        return pieces

    def divides_unit(self) -> bool:
        kind, text = self.peek(1)
        return text == "(" or (kind == "name" and symbol_or_name(text) is not None)

    def unit_power(self) -> str:
        power = self.argument()
        sign = 1
        while isinstance(power, Call) and power.name == "neg":
            power, sign = power.args[0], -sign
        if not isinstance(power, Number) or power.value.denominator != 1 or power.value > 99:
            raise Unparsable("power of a unit")
        return f"^{sign * power.value}"

    # ------------------------------------------------------------ brackets

    def bracketed(self) -> Node:
        """A group, a tuple, an interval or a set."""
        opening = self.take().text
        if opening == r"\{" and self.is_set_builder():
            return self.set_builder()
        bars, self.bars = self.bars, 0
        items = () if self.peek().text == r"\}" else tuple(self.items()[0])
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

    def is_set_builder(self) -> bool:
        separator = 3 if self.peek(1).text == r"\in" else 1
        return self.peek().kind == "name" and len(self.peek().text) == 1 and self.peek(separator).text in _SUCH_THAT

    def set_builder(self) -> Node:
        r"""`\{x \in \mathbb{R} : -1 < x < 4\}`: the region of its condition."""
        self.take()
        if self.accept(r"\in") and self.take().text != r"\reals":
            raise Unparsable("a set of other than real numbers")
        self.take()
        condition = self.answer()
        self.expect(r"\}")
        kind = {"list": "intersection"}.get(condition.kind, condition.kind) if isinstance(condition, Items) else ""
        return Items(kind, condition.items) if kind else condition


WHOLE_LINE = Interval(Call("neg", (Call("inf"),)), Call("inf"), False, False)


def _has_function(letters: str) -> bool:
    """Whether a run of letters holds a function, perhaps between single letters (`xsinx`)."""
    for start in range(min(3, len(letters))):
        rest = letters[start:]
        if rest == "sqrt" or rest in FUNCTIONS or (rest[:-1] in FUNCTIONS and len(rest) > 1):
            return True
    return False


def _may_have_unit(value: Node, words: list[str]) -> bool:
    """A letter by itself has a unit only if that is a symbol or name of some length: `\\text{B A C}` has none."""
    if isinstance(value, Items | Interval | Text):
        return False
    return not isinstance(value, Symbol) or all(len(word) > 1 and symbol_or_name(word) for word in words)


def _is_degrees(value: Node) -> bool:
    return isinstance(value, Call) and (value.name == "degree" or (value.name == "neg" and _is_degrees(value.args[0])))


def _without_degrees(value: Node) -> Node:
    return value.args[0] if value.name == "degree" else Call("neg", (_without_degrees(value.args[0]),))


def _mapping(left: Node, right: Node) -> Node:
    r"""`f: x \mapsto y` and `x \mapsto y` are y; `f(x) \mapsto y` is an equation."""
    if isinstance(left, Call) and left.name == "ratio" and len(left.args) == 2:
        left = left.args[0]
    if not isinstance(left, Symbol) and not is_applied(left):
        raise Unparsable("a mapping")
    return Relation(("=",), (left, right)) if is_applied(left) else right
