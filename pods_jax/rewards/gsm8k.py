"""Task "gsm8k": the final answer is a number equal to the gold (compared exactly, without tolerance)."""

import functools
from fractions import Fraction

from pods_jax.errors import UserError
from pods_jax.rewards.extract import final_answer
from pods_jax.rewards.number import parse_number
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register


def check(gold: str) -> None:
    """See `Verifier`."""
    _expected(gold)


@register("gsm8k", bounded=True, check=check)
def judge(output: str, gold: str) -> Verdict:
    """Compares two numbers; `extract` and `number` document what is read as one.

    Raises:
      UserError: if the gold is not a number.
    """
    expected = _expected(gold)
    stated = parse_number(final_answer(output) or "")
    return no_answer() if stated is None else compared(stated == expected, str(stated))


@functools.lru_cache(maxsize=4096)
def _expected(gold: str) -> Fraction:
    number = parse_number(gold)
    if number is None:
        raise UserError(f"gsm8k: the gold {gold[:80]!r} is not a number")
    return number
