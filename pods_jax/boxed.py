r"""The contents of `\boxed{..}` in an output or in a data set's solution, found in time linear in the text."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_BRACES = re.compile(r"\\(?:boxed|fbox)\s{0,3}\{|\\[{}]|[{}]")
_BARE_BOX = re.compile(r"\\boxed\s{0,3}(-?[0-9]+(?:\.[0-9]+)?)(?![0-9])")
_GLUE = re.compile(r"[\s$]{0,8}(?:[,;&]|\band\b|\bor\b)(?:[\s$,;&]|\band\b|\bor\b){0,16}")


def in_box(text: str) -> str | None:
    r"""The contents of the last balanced `\boxed{..}` or `\fbox{..}`, by where they start; None if there is none.

    Escaped braces do not count. Boxes with only a comma, "and" or "or" between them are parts of one answer: their
    different contents are joined by commas. If no box is balanced, a number right after a bare `\boxed` counts.
    """
    boxes = sorted(_boxes(text))
    if not boxes:
        bare = _BARE_BOX.findall(text)
        return bare[-1] if bare else None
    parts = [boxes.pop()]
    while boxes and boxes[-1].end < parts[0].start and _GLUE.fullmatch(text[boxes[-1].end + 1 : parts[0].start]):
        parts.insert(0, boxes.pop())
    return ", ".join(dict.fromkeys(text[box.inside : box.end].strip() for box in parts))


class _Box(NamedTuple):
    """The places in a text of a box's command, of its contents, and of its closing brace."""

    start: int
    inside: int
    end: int


def _boxes(text: str) -> Iterator[_Box]:
    """All balanced boxes."""
    unclosed: list[re.Match] = []
    for brace in _BRACES.finditer(text):
        if brace[0] == "}" and unclosed:
            opening = unclosed.pop()
            if opening[0] != "{":
                yield _Box(opening.start(), opening.end(), brace.start())
        elif brace[0].endswith("{") and brace[0] != r"\{":
            unclosed.append(brace)
