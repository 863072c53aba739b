"""Task "pods_lenient": the lenient rule of the PODS authors' single-device runs (arXiv 2504.13818, released code).

An output is right if any of three texts equals the gold as in task "math": the whole output, the contents of the last
`<answer>` (closed or not), the last number in the output. So a number that merely occurs last is paid for; task "math"
is stricter. A text of more than 200 characters is no answer, and is not read.
"""

import re

from pods_jax.rewards.extract import MAX_CHARS
from pods_jax.rewards.verdict import Verdict, no_answer, register
from pods_jax.rewards.verifiers.math import check, checked, compare, quick_comparison

MAX_CANDIDATE_CHARS = 200

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_GROUPS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


def candidates(output: str) -> list[str]:
    """The texts of which one must be the gold; at most three, none longer than `MAX_CANDIDATE_CHARS`."""
    text = output[-MAX_CHARS:]
    numbers = _NUMBER.findall(_GROUPS.sub("", text))
    answer = text.rpartition("<answer>")[2]
    found = (answer.partition("</answer>")[0].strip(), numbers[-1] if numbers else "", text.strip())
    return [candidate for candidate in found if 0 < len(candidate) <= MAX_CANDIDATE_CHARS]


def quick(output: str, gold: str) -> Verdict | None:
    """The verdict, if the cheap layer decides for one candidate or against all; None otherwise."""
    return _best([quick_comparison(candidate, gold.strip()) for candidate in candidates(output)])


@register("pods_lenient", quick=quick, check=check)
def verify(output: str, gold: str) -> Verdict:
    """The first verdict that says correct, or else the first: on the contents of `<answer>`, or on all without one."""
    verdicts = [
        quick_comparison(candidate, gold.strip()) or compare(candidate, gold)
        for candidate in candidates(output)
        if checked(gold)
    ]
    return _best(verdicts)


def _best(verdicts: list[Verdict | None]) -> Verdict | None:
    for verdict in verdicts:
        if verdict is not None and verdict.correct:
            return verdict
    if not verdicts:
        return no_answer()
    return None if None in verdicts else verdicts[0]
