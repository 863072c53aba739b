r"""The contents of `\boxed{..}`, of a model's output or of a data set's solution. All is linear in the text."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_BRACES = re.compile(r"\\(?:boxed|fbox)\s{0,3}\{|\\[{}]|[{}]")
_BARE_BOX = re.compile(r"\\boxed\s{0,3}(-?[0-9]+(?:\.[0-9]+)?)(?![0-9])")
_GLUE = re.compile(r"[\s$]{0,8}(?:[,;&]|\band\b|\bor\b)(?:[\s$,;&]|\band\b|\bor\b){0,16}")


def in_box(text: str) -> str | None:
    r"""The contents of the balanced `\boxed{..}` or `\fbox{..}` that starts last; escaped braces do not count.

    Boxes with nothing but a comma, "and" or "or" between them are one answer in parts: their different contents are
    joined by commas. Where no box is balanced, a number right after a `\boxed` without braces counts.
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
    """Places in a text: of the command, of its contents, of its closing brace."""

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
