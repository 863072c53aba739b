r"""Sums, products, integrals and limits: operators that bind a variable.

A bound variable is named by the depth at which it is bound ("#0", "#1"), so that its letter does not count.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from pods_jax.rewards.grammar.nodes import Call, Node, Number, Symbol
from pods_jax.rewards.grammar.reader import Reader, fail
from pods_jax.rewards.grammar.tokens import Token, Unparsable
from pods_jax.rewards.grammar.words import GREEK

_DIFFERENTIAL = re.compile(r"([A-Za-z]*)d([A-Za-z])")


class Binders(Reader):
    """Reads operators that bind a variable, after their command.

    `bound` holds the variables that are bound around the place, by the letter they are written as.
    """

    def __init__(self, tokens: list[Token], depth: int = 0, bound: dict[str, Symbol] | None = None):
        super().__init__(tokens, depth)
        self.bound = bound or {}

    def binding(self, letter: str) -> tuple[Symbol, dict[str, Symbol]]:
        """A variable that is bound here, named by the depth of binding, and all that are bound inside."""
        variable = Symbol(f"#{len(self.bound)}")
        return variable, self.bound | {letter: variable}

    def index(self) -> str:
        kind, text = self.take()
        if not (kind in ("name", "letters") and len(text) == 1) and text.lstrip("\\") not in GREEK:
            raise Unparsable("index")
        return text.lstrip("\\")

    def within(self, bound: dict[str, Symbol], read: Callable[[], Node]) -> Node:
        outer, self.bound = self.bound, bound
        try:
            return self.nested(lambda: self.signed(read))
        finally:  # also where another reading is tried after this one
            self.bound = outer

    def big_operator(self, name: str) -> Node:
        r"""`\sum_{k=1}^{n}` or `\prod` and the product that follows."""
        self.expect("_")
        self.expect("{")
        letter = self.index()
        self.expect("=")
        low = self.sum()
        self.expect("}")
        self.expect("^")
        high = self.argument()
        variable, bound = self.binding(letter)
        return Call(name, (self.within(bound, self.term), variable, low, high))

    def limit(self) -> Node:
        r"""`\lim_{x \to a}`, perhaps from one side, and the product that follows."""
        self.expect("_")
        self.expect("{")
        letter = self.index()
        self.expect(r"\to")
        end = next((place for place in range(self.place, len(self.tokens)) if self.tokens[place].text == "}"), 0)
        inside = [token.text for token in self.tokens[self.place : end]]
        side = inside[-1] if inside[-2:-1] == ["^"] and inside[-1] in "+-" else ""
        if side:
            del self.tokens[end - 2 : end]
        point = self.sum()
        self.expect("}")
        variable, bound = self.binding(letter)
        return Call(f"lim{side}", (self.within(bound, self.term), variable, point))

    def integral(self) -> Node:
        """A definite integral up to its differential."""
        self.expect("_")
        low = self.argument()
        self.expect("^")
        high = self.argument()
        place, letter = self.differential(self.place)
        if place is None and self.peek().text == r"\frac" and self.peek(1).text == "{":
            place, letter = self.differential(self.place + 2)
            self.drop_differential(place)
            variable, bound = self.binding(letter)
            return Call("int", (self.within(bound, self.term), variable, low, high))
        variable, bound = self.binding(letter or fail("no differential"))
        start = self.place
        end = self.drop_differential(place)
        inside = type(self)(self.tokens[start:end], self.depth + 1, bound)
        body = inside.sum() if end > start else Number(Fraction(1))
        inside.expect("")
        self.place = end
        return Call("int", (body, variable, low, high))

    def differential(self, start: int) -> tuple[int | None, str]:
        """The place of the differential of an integral that starts here, and its variable; (None, "") for none."""
        depth = 0
        integrals = 1
        for place in range(start, len(self.tokens)):
            text = self.tokens[place].text
            depth += (text in ("{", "(", "[")) - (text in ("}", ")", "]"))
            integrals += text == r"\int"
            if depth < 0:
                break
            match = _DIFFERENTIAL.fullmatch(text)
            after = self.tokens[place + 1].text.lstrip("\\") if place + 1 < len(self.tokens) else ""
            apart = text == "d" and ((len(after) == 1 and after.isalpha()) or after in GREEK)
            if depth == 0 and (match or apart):
                integrals -= 1
                if not integrals:
                    return place, match[2] if match else after
        return None, ""

    def drop_differential(self, place: int | None) -> int:
        """Takes the differential out of the tokens; where it stood."""
        if place is None:
            raise Unparsable("no differential")
        text = self.tokens[place].text
        factors = text[:-2]
        empty = not factors and self.tokens[place - 1].text == "{"
        left = [Token("letters", factors)] if factors else [Token("number", "1")] if empty else []
        self.tokens[place : place + (1 if len(text) > 1 else 2)] = left
        return place + len(left)
