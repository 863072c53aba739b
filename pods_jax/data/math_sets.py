r"""Data sets of mathematics problems whose golds are for task "math".

A row gives its gold as `answer` or `final_answer`, or as the last `\boxed{}` of its `solution`, braces balanced.
"""

from collections.abc import Mapping
from typing import Any

from pods_jax.boxed import in_box
from pods_jax.data.examples import Example
from pods_jax.data.problems import Source, register_source, text_field
from pods_jax.data.reading import BadRow

SYSTEM = r"Solve the problem step by step, and put your final answer within \boxed{}."
SUBJECTS = ("algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
            "precalculus")  # fmt: skip


class EmptyBox(BadRow):
    """The solution boxes nothing: the published MATH has two such training problems."""


def _example(fields: Mapping[str, Any]) -> Example:
    kind = fields.get("type") or fields.get("subject") or ""
    return Example(text_field(fields, "problem", "question", "prompt"), _gold(fields), str(kind))


def _gold(fields: Mapping[str, Any]) -> str:
    for name in ("answer", "final_answer"):
        value = fields.get(name)
        if isinstance(value, list) and value:
            value = ", ".join(map(str, value))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int | float) or (isinstance(value, str) and value.strip()):
            return str(value).strip().removeprefix("$").removesuffix("$").strip()
    gold = in_box(text_field(fields, "answer", "final_answer", "solution"))
    if not gold:
        raise (BadRow if gold is None else EmptyBox)(r"the solution has no answer in \boxed{}")
    return gold


def _olympiad_example(fields: Mapping[str, Any]) -> Example | None:
    """Problems without figures whose answer is a number."""
    text_only = "text" in str(fields.get("modality", "text")).lower()
    numeric = str(fields.get("answer_type", "Numerical")).lower() == "numerical"
    return _example(fields) if text_only and numeric else None


def _source(name: str, hub: str, **fields: Any) -> None:
    register_source(Source(name, hub, **{"example": _example, "task": "math", "system": SYSTEM} | fields))


_source("math", "EleutherAI/hendrycks_math", configs=SUBJECTS, known_defects=(EmptyBox,))
_source("math500", "HuggingFaceH4/MATH-500", train=None)
_source("amc23", "math-ai/amc23", train=None)
_source("aime24", "HuggingFaceH4/aime_2024", train=None, test="train")
_source("aime25", "math-ai/aime25", train=None)
_source("minerva", "math-ai/minervamath", train=None)
_source("olympiadbench", "Hothan/OlympiadBench", configs=("OE_TO_maths_en_COMP",), train=None, test="train",
        example=_olympiad_example)  # fmt: skip
_source("deepmath", "zwhe99/DeepMath-103K", test=None)
_source("polaris", "POLARIS-Project/Polaris-Dataset-53K", test=None)
