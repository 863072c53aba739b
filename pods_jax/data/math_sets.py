r"""Data sets of mathematics problems, with golds for task "math".

A row gives its gold as `answer` or `final_answer`, or as the last `\boxed{}` with balanced braces of its `solution`.

The sets whose names end in "_tolerant" are the same problems for task "math_tolerance", which compares numbers within
the published tolerance. The other sets compare exactly.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from pods_jax.boxed import in_box
from pods_jax.data.examples import Example
from pods_jax.data.problems import Source, register_source, text_field
from pods_jax.data.reading import BadRow

SYSTEM = r"Solve the problem step by step, and put your final answer within \boxed{}."
SUBJECTS = ("algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
            "precalculus")  # fmt: skip
NO_ANSWER = ("nan", "inf", "-inf")


class EmptyBox(BadRow):
    """The box of the solution is empty: the published MATH has two such training problems."""


def _example(fields: Mapping[str, Any]) -> Example:
    kind = fields.get("type") or fields.get("subject") or ""
    return Example(text_field(fields, "problem", "question", "prompt"), _gold(fields), str(kind))


def _gold(fields: Mapping[str, Any]) -> str:
    return ", ".join(_golds(fields))


def _golds(fields: Mapping[str, Any]) -> list[str]:
    for name in ("answer", "final_answer"):
        value = fields.get(name)
        texts = [_text(item) for item in (value if isinstance(value, list) else [value])]
        if any(texts):
            return texts
    gold = in_box(text_field(fields, "answer", "final_answer", "solution"))
    if not gold:
        raise (BadRow if gold is None else EmptyBox)(r"the solution has no answer in \boxed{}")
    return [gold]


def _text(value: Any) -> str:
    """A gold as text, without dollar signs around it; empty for what is missing, null or blank.

    Raises:
      BadRow: the value is no answer, such as NaN, which some programs write for a missing value.
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or str(value).strip().lower() in NO_ANSWER:
        raise BadRow(f"{value!r} is no answer")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip().removeprefix("$").removesuffix("$").strip()


# ---------------------------------------------------------------- golds with a tolerance, for task "math_tolerance"


def _minerva_tolerant(fields: Mapping[str, Any]) -> Example:
    """An example with the authors' relative tolerance of 1 % (Lewkowycz et al. 2022, arXiv 2206.14858)."""
    return dataclasses.replace(_example(fields), gold=json.dumps({"answers": _golds(fields), "relative": 0.01}))


def _olympiad(fields: Mapping[str, Any]) -> Example | None:
    """An example without figures, with an answer of any type but a proof, which has no gold; else None."""
    text_only = "text" in str(fields.get("modality", "text")).lower()
    proof = "human" in str(fields.get("answer_type", "")).lower()
    return _example(fields) if text_only and not proof else None


def _olympiad_tolerant(fields: Mapping[str, Any]) -> Example | None:
    """An example whose gold has the `error` of each answer and the `unit` of the problem."""
    example = _olympiad(fields)
    if example is None:
        return None
    answers = _golds(fields)
    gold = {"answers": answers, "unit": _text(fields.get("unit")), "absolute": _errors(fields, len(answers))}
    return dataclasses.replace(example, gold=json.dumps({name: value for name, value in gold.items() if value}))


def _errors(fields: Mapping[str, Any], count: int) -> list[float]:
    """The absolute error of each answer; [] for none. The field holds one for all, or one for each ("1e-1,1e-2")."""
    field = fields.get("error")
    if field is None or not str(field).strip() or field != field:
        return []
    try:
        errors = [float(error) for error in str(field).split(",")]
    except ValueError as unreadable:
        raise BadRow(f"the error {field!r} is no number") from unreadable
    if len(errors) not in (1, count) or not all(0 <= error < math.inf for error in errors):
        raise BadRow(f"the error {field!r} does not fit {count} answers")
    return errors * count if len(errors) == 1 else errors


# ---------------------------------------------------------------- the sets


def _source(name: str, hub: str, **fields: Any) -> None:
    register_source(Source(name, hub, **{"example": _example, "task": "math", "system": SYSTEM} | fields))


_source("math", "EleutherAI/hendrycks_math", configs=SUBJECTS, known_defects=(EmptyBox,))
_source("math500", "HuggingFaceH4/MATH-500", train=None)
_source("amc23", "math-ai/amc23", train=None)
_source("aime24", "HuggingFaceH4/aime_2024", train=None, test="train")
_source("aime25", "math-ai/aime25", train=None)
_source("minerva", "math-ai/minervamath", train=None)
_source("minerva_tolerant", "math-ai/minervamath", train=None, example=_minerva_tolerant, task="math_tolerance")
_OLYMPIAD = {"hub": "Hothan/OlympiadBench", "configs": ("OE_TO_maths_en_COMP",), "train": None, "test": "train"}
_source("olympiadbench", **_OLYMPIAD, example=_olympiad)
_source("olympiadbench_tolerant", **_OLYMPIAD, example=_olympiad_tolerant, task="math_tolerance")
_source("deepmath", "zwhe99/DeepMath-103K", test=None)
_source("deepmath_filtered", "friendshipkim/DeepMath-103K-filtered")  # as the authors of Pilot-Commit trained on it
_source("polaris", "POLARIS-Project/Polaris-Dataset-53K", test=None)
