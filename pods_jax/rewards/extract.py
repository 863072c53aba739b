r"""Extraction of a model's final answer.

Thinking holds no answer: only the text after the last `</think>` is read, and only its last 100,000 characters. An
output that opens `<think>` and never closes it has an answer only in a closed `<answer>`. Some chat templates end the
prompt with `<think>`; `prefill` finds it, and the output that verifiers read begins with it.

The markers are tried in this order, and each marker found narrows the text for the next one (`<answer>It is
\boxed{3}</answer>` is 3). A box ends the search: its contents are the answer.

1. the last `<answer>` that is closed, up to its `</answer>`;
2. the last balanced `\boxed{..}`, with the boxes that are joined to it (`\boxed{1}, \boxed{2}` is a list);
3. the text after the last `####` on its line or, if that is blank, the next line that is not;
4. the text after the last "answer is", "answer:" or "answer =", to the end of the sentence or line ("is not" and
   "wrong answer" are no markers). A question keeps its question mark, by which verifiers refuse it.

A formula in `$$..$$` or `\[..\]` on lines of its own counts as one line. Without a marker there is no answer: a number
that merely occurs in the text is never taken for one. The time is linear in the length of the text.
"""

import re

from pods_jax.boxed import in_box

MAX_CHARS = 100_000
MAX_PREFILL_CHARS = 100

PHRASE = re.compile(
    r"(?<!wrong\s)(?<!incorrect\s)\banswer(?:\s{1,3}is\b(?!\s{1,3}not\b)|[\"'*]{0,3}\s{0,3}[:=])", re.IGNORECASE
)
HASHES = re.compile("####")
_SENTENCE_END = re.compile(r"(?:[.!]|(?<=\?))(?=\s|$)")
_TAG = re.compile(r"<[|/]")
_DISPLAY = re.compile(r"\$\$[ \t\r]*\n([^$]*)\$\$|\\\[[ \t\r]*\n(.*?)\\\]", re.DOTALL)
_PREFILL = re.compile(r"<think>\s*(?:</think>\s*)?\Z")


def final_answer(output: str) -> str | None:
    """The text of the final answer, stripped; None if the output marks none."""
    if not _is_thinking(output):
        return _marked(after_thinking(output))
    inside = in_answer_tags(output[-MAX_CHARS:]) or ""
    return _marked(inside) or inside or None


def _marked(text: str) -> str | None:
    answer = None
    for marked in (in_answer_tags, in_box, after_hashes, after_phrase):
        inside = marked(text)
        if inside is not None:
            text = answer = inside
        if inside is not None and marked is in_box:  # the contents of a box are mathematics
            break
    return answer or None


def after_thinking(output: str) -> str:
    """The text after the last `</think>`, or all if there is none; at most the last `MAX_CHARS` characters.

    It is empty if the output ends within its thinking.
    """
    return "" if _is_thinking(output) else output[-MAX_CHARS:].rpartition("</think>")[2].strip()


def prefill(prompt: str) -> str:
    """The end of a rendered prompt that belongs to the output: `<think>`, closed or not, and the blanks after it."""
    match = _PREFILL.search(prompt[-MAX_PREFILL_CHARS:])
    return match[0] if match else ""


def _is_thinking(output: str) -> bool:
    return output.rfind("<think>") > output.rfind("</think>")


def in_answer_tags(text: str) -> str | None:
    """The contents of the last `<answer>` that is closed, up to its first `</answer>`."""
    closed, _, _ = text.rpartition("</answer>")
    _, opening, inside = closed.rpartition("<answer>")
    return inside.partition("</answer>")[0].strip() if opening else None


def after_hashes(text: str) -> str | None:
    """The line that follows the last `####`."""
    rest = following(text, HASHES)
    return None if rest is None else _first_line(rest)


def after_phrase(text: str, pattern: re.Pattern = PHRASE) -> str | None:
    """The rest of the sentence that follows the last "answer is", "answer:" or "answer =" (or another pattern)."""
    rest = following(text, pattern)
    return None if rest is None else _SENTENCE_END.split(_first_line(rest), maxsplit=1)[0].strip(" *")


def following(text: str, marker: re.Pattern) -> str | None:
    """All text after the last match of the marker, without leading emphasis and blanks."""
    end = max((match.end() for match in marker.finditer(text)), default=None)
    return None if end is None else text[end:].lstrip(" \t\r\n:=*")


def _first_line(text: str) -> str:
    """The first line that is not blank, without emphasis, up to a closing tag or special token."""
    display = _DISPLAY.match(text)
    line = display[display.lastindex].strip() if display else text.partition("\n")[0]
    return _TAG.split(line, maxsplit=1)[0].strip(" \t\r*")
