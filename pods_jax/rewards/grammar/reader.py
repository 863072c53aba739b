"""A cursor over the tokens of one answer. Every loop of its users takes a token, and nesting is limited."""

from collections.abc import Callable
from typing import TypeVar

from pods_jax.rewards.grammar.tokens import Token, Unparsable

MAX_DEPTH = 16

Read = TypeVar("Read")
_END = Token("finish", "")


class Reader:
    """Tokens and a place among them; `bars` counts the absolute values that are open there."""

    def __init__(self, tokens: list[Token], depth: int = 0):
        self.tokens = tokens
        self.depth = depth
        self.place = self.bars = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token some places ahead; one of kind "finish" after the last."""
        place = self.place + ahead
        return self.tokens[place] if 0 <= place < len(self.tokens) else _END

    def take(self) -> Token:
        """The next token, which is passed."""
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
        """Takes the next token, which has to be this one; "" stands for the end."""
        if self.take().text != text:
            raise Unparsable(f"expected {text or 'the end'!r}")

    def skip(self, count: int) -> bool:
        """Passes some tokens; True, so that it may stand in conditions."""
        self.place += count
        return True

    def split(self, length: int) -> str:
        """Takes the first characters of the next token; what is left of a run of digits or letters stays a token."""
        kind, text = self.take()
        if not text.isalnum() or (kind == "number" and not text.isdigit()):
            return text
        if text[length:]:
            self.place -= 1
            self.tokens[self.place] = Token("letters" if kind == "name" else kind, text[length:])
        return text[:length]

    def nested(self, read: Callable[[], Read]) -> Read:
        """The result of `read`, one level deeper."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        node = read()
        self.depth -= 1
        return node

    def attempt(self, read: Callable[[], Read]) -> Read | None:
        """The result of `read`; None, with nothing taken, where it finds nothing of its kind."""
        saved = (self.place, self.depth, self.bars, list(self.tokens))
        try:
            return read()
        except Unparsable:
            self.place, self.depth, self.bars, self.tokens = saved
            return None


def fail(what: str):
    """Raises `Unparsable`, where a statement cannot stand."""
    raise Unparsable(what)
