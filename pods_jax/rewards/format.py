"""Rewards for the form of an output, whatever its answer: functions text -> float in [0, 1]."""

import re

from pods_jax.registry import Registry
from pods_jax.rewards.extract import after_hashes, after_thinking, in_box

FORMATS: Registry = Registry("format reward")

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_ANY_TAG = re.compile("|".join(TAGS))


@FORMATS.register("none")
def no_format(text: str) -> float:
    """Always 1: no form is asked for."""
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


@FORMATS.register("boxed_or_hash")
def boxed_or_hash(text: str) -> float:
    r"""1 if the text marks an answer, not an empty one, by `\boxed{..}` or `####`."""
    reply = after_thinking(text)
    return float(bool(in_box(reply) or after_hashes(reply)))
