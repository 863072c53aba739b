"""Data set "sciknoweval_chemistry": the chemistry part of SciKnowEval (Feng et al. 2024, arXiv 2406.09098).

The problems are multiple choice, true or false, and equations to balance. Each prompt begins with the data set's own
instructions. The data has no splits: test problems are drawn with the seed.
"""

from collections.abc import Mapping
from typing import Any

from pods_jax.data.examples import Example
from pods_jax.data.problems import Source, register_source, text_field
from pods_jax.data.reading import BadRow

SYSTEM = r"Think step by step. Then put your final answer, and nothing else, within \boxed{}."


def _example(fields: Mapping[str, Any]) -> Example | None:
    if fields.get("domain", "Chemistry") != "Chemistry":
        return None
    kind = text_field(fields, "type")
    gold = text_field(fields, "answerKey" if kind.startswith("mcq") else "answer")
    parts = [_instructions(fields), text_field(fields, "question"), _options(fields)]
    return Example("\n\n".join(part for part in parts if part), gold, str(_details(fields).get("task") or kind))


def _details(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    details = fields.get("details")
    return details if isinstance(details, Mapping) else {}


def _instructions(fields: Mapping[str, Any]) -> str:
    prompt = fields.get("prompt")
    return str(prompt.get("default") or "").strip() if isinstance(prompt, Mapping) else ""


def _options(fields: Mapping[str, Any]) -> str:
    choices = fields.get("choices") or {}
    texts = choices.get("text") or []
    labels = choices.get("label") or []
    if len(texts) != len(labels):
        raise BadRow(f"{len(texts)} choices with {len(labels)} labels")
    return "\n".join(f"{label}) {text}" for label, text in zip(labels, texts, strict=True))


load = register_source(
    Source(
        "sciknoweval_chemistry",
        hub="hicai-zju/SciKnowEval",
        train="test",
        test=None,
        example=_example,
        task="sciknoweval",
        system=SYSTEM,
        ids=(),
        shuffled=True,
    )
)
