"""Rewards for the form of an output, independent of its answer: functions text -> float in [0, 1]."""

import re

from pods_jax.registry import Registry
from pods_jax.rewards.extract import after_hashes, after_thinking, in_box

FORMATS: Registry = Registry("format reward")

NEAR_PENALTY = 0.01

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_ANY_TAG = re.compile("|".join(TAGS))
_JUNCTION = re.compile(r"</think>\s?<answer>")
_TAG_LINES = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")


@FORMATS.register("none")
def no_format(text: str) -> float:
    """Always 1: no form is required."""
    return 1.0


@FORMATS.register("digits")
def digits(text: str) -> float:
    """1 if the text, without blanks around it, consists of decimal digits."""
    number = text.strip()
    return float(number.isascii() and number.isdecimal())


@FORMATS.register("think_answer")
def think_answer(text: str) -> float:
    """1 if the text is one `<think>..</think>` and then one `<answer>..</answer>`, with only blanks around them."""
    if tuple(_ANY_TAG.findall(text)) != TAGS:
        return 0.0
    before, _, between, _, after = _ANY_TAG.split(text)
    return float(not (before + between + after).strip())


@FORMATS.register("tag_count")
def tag_count(text: str) -> float:
    """0.25 for each of the four tags that occurs exactly once (Xu et al. 2025, arXiv 2504.13818, authors' code)."""
    return sum(text.count(tag) == 1 for tag in TAGS) / len(TAGS)


@FORMATS.register("think_answer_near")
def think_answer_near(text: str) -> float:
    """1 minus 0.01 for each character outside of `<think>..</think><answer>..</answer>`, at least 0.

    One blank or line feed may stand between the two blocks. The value is nearly continuous, so it breaks most ties
    between rewards (Xu et al. 2025, arXiv 2504.13818, authors' code for one device).
    """
    return max(0.0, 1.0 - NEAR_PENALTY * (len(text) - _length_in_form(text)))


def _length_in_form(text: str) -> int:
    """The number of characters from the first `<think>` to the `</answer>` of the first complete block; 0 for none."""
    junction = _JUNCTION.search(text)
    if junction is None:
        return 0
    start = text.find("<think>", 0, junction.start())
    end = text.find("</answer>", junction.end())
    return end + len("</answer>") - start if start >= 0 and end >= 0 else 0


@FORMATS.register("think_answer_lines")
def think_answer_lines(text: str) -> float:
    """1 if the text is the two blocks, each tag on a line of its own (authors' code for several devices)."""
    return float(think_answer(text) and _lines_in_order(text))


def _lines_in_order(text: str) -> bool:
    opening, closing, answer, end = _TAG_LINES
    return text.startswith(opening) and text.endswith(end) and closing + answer[1:] in text


@FORMATS.register("tag_line_count")
def tag_line_count(text: str) -> float:
    """0.25 for each tag that occurs exactly once on a line of its own (authors' code for several devices)."""
    return sum(text.count(line) == 1 for line in _TAG_LINES) / len(_TAG_LINES)


@FORMATS.register("boxed_or_hash")
def boxed_or_hash(text: str) -> float:
    r"""1 if the text marks an answer that is not empty by `\boxed{..}` or `####`."""
    reply = after_thinking(text)
    return float(bool(in_box(reply) or after_hashes(reply)))
