"""Numbers as they are written: decimals, mixed numbers, periods under a bar, digits with a base."""

from fractions import Fraction

from pods_jax.rewards.grammar.bases import based_number
from pods_jax.rewards.grammar.nodes import Node, Number
from pods_jax.rewards.grammar.reader import Reader, fail
from pods_jax.rewards.grammar.tokens import Unparsable

MAX_DIGITS = 1_000


class Numerals(Reader):
    """Reads numbers."""

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
        return based_number(digits, base) or fail("base")

    def mixed_part(self) -> Fraction:
        r"""The proper fraction that follows a whole number, as `1/2` or `\frac{1}{2}`; 0 if there is none."""
        above, slash, below = (self.peek(ahead) for ahead in range(3))
        if above.kind == below.kind == "number" and slash.text == "/":
            start = self.place + 3
            fraction = (above.text, below.text)
        else:
            start, fraction = self.plain_fraction()
        if not all(map(str.isdigit, fraction)) or max(map(len, fraction)) > MAX_DIGITS:
            return Fraction(0)
        if not 0 < int(fraction[0]) < int(fraction[1]):
            return Fraction(0)
        self.place = start
        return Fraction(int(fraction[0]), int(fraction[1]))

    def plain_fraction(self) -> tuple[int, tuple[str, str]]:
        r"""The place after a `\frac{a}{b}` of two numbers, and these; ("", "") if something else stands here."""
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
        if kind != "number" or not text.isdigit() or len(text) > MAX_DIGITS:
            raise Unparsable("digits")
        self.expect("}")
        return text
