"""Data set "gsm8k": grade school word problems (Cobbe et al. 2021, arXiv 2110.14168).

Rows have the fields `question` and `answer`; the gold is what follows "####" in the answer, without commas.
"""

import re
from collections.abc import Mapping
from typing import Any

from pods_jax.data.examples import Example
from pods_jax.data.problems import Source, register_source
from pods_jax.data.reading import BadRow

SYSTEM = (
    "Solve the problem step by step. Then write the final answer, a number without a unit, on a last line of its own "
    "after ####."
)

_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")


def _example(fields: Mapping[str, Any]) -> Example:
    question = fields.get("question")
    answer = fields.get("answer")
    if not isinstance(question, str) or not isinstance(answer, str) or not question.strip():
        raise BadRow("expected an object with the texts 'question' and 'answer'")
    _, mark, gold = answer.rpartition("####")
    gold = gold.strip().replace(",", "")
    if not mark or not _NUMBER.fullmatch(gold):
        raise BadRow(f"expected the answer to end in '#### ' and a number, found {answer[-40:]!r}")
    return Example(question.strip(), gold)


load = register_source(
    Source("gsm8k", hub="openai/gsm8k", configs=("main",), example=_example, task="gsm8k", system=SYSTEM)
)
