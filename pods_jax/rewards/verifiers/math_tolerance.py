r"""Task "math_tolerance": as "math", except that numbers may differ from the gold by the tolerance that it states.

A gold is a JSON object {"answers": ["1.6"], "relative": 0.01} or {"answers": ["2", "3"], "absolute": [0.1, 0.01]},
with a "unit" where the problem asks for one. Any other gold is one of task "math", without tolerance. The published
sets have these tolerances:

- Minerva (Lewkowycz et al. 2022, arXiv 2206.14858): relative 1 % of the gold, after units, where answers are numbers;
- OlympiadBench (He et al. 2024, arXiv 2402.14008): an absolute error for each answer of a problem.

A unit may be missing on one side; two units must be the same. Several answers may stand in any order. An answer that
is no number is compared exactly.
"""

import functools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from pods_jax.errors import UserError
from pods_jax.rewards.extract import final_answer
from pods_jax.rewards.grammar.nodes import Items, Node, Quantity, Relation, Symbol, symbols
from pods_jax.rewards.grammar.numeric import Unknown, evaluate
from pods_jax.rewards.grammar.rationals import TooLarge, Undefined
from pods_jax.rewards.verdict import VERIFIERS, Verdict, compared, register
from pods_jax.rewards.verifiers.math import parsed


class Gold(NamedTuple):
    """Answers with the largest allowed difference from each: `absolute`, or `relative` times the answer's size."""

    answers: tuple[str, ...]
    unit: str = ""
    relative: float = 0.0
    absolute: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """The gold as task "math" reads it."""
        return ", ".join(self.answers)


def check(gold: str) -> None:
    """See `Verifier`."""
    VERIFIERS["math"].check(read_gold(gold).text)


def quick(output: str, gold: str) -> Verdict | None:
    """The verdict if the answer is missing or written like the gold; None otherwise."""
    verdict = VERIFIERS["math"].quick(output, read_gold(gold).text)
    return verdict if verdict is None or verdict.correct or verdict.answer is None else None


@register("math_tolerance", quick=quick, check=check)
def verify(output: str, gold: str) -> Verdict:
    """The verdict of task "math" if that is "correct" or the answers are no numbers.

    Raises:
      UserError: the gold is empty, or an object of another form.
    """
    expected = read_gold(gold)
    answer = final_answer(output)
    exact = VERIFIERS["math"].verify(output, expected.text)
    if answer is None or exact.correct or not (expected.relative or expected.absolute):
        return exact
    stated = _quantities(answer)
    wanted = [_quantity(parsed(text + expected.unit) or parsed(text)) for text in expected.answers]
    if stated is None or None in wanted or len(stated) != len(wanted):
        return exact
    return compared(_all_close(stated, wanted, expected), answer)


@functools.lru_cache(maxsize=4096)
def read_gold(gold: str) -> Gold:
    """The parts of a gold. UserError for an object of another form."""
    if not gold.lstrip().startswith('{"answers"'):
        return Gold((gold,))
    try:
        return _gold(**json.loads(gold))
    except (ValueError, TypeError) as error:
        raise UserError(f"math_tolerance: the gold {gold[:80]!r} is not of the documented form ({error})") from error


def _gold(answers: list[str], unit: str = "", relative: float = 0.0, absolute: Any = ()) -> Gold:
    tolerances = tuple(map(float, absolute))
    if not answers or not all(isinstance(answer, str) for answer in answers):
        raise ValueError("answers must be texts")
    if len(tolerances) not in (0, len(answers)) or not all(0 <= t < float("inf") for t in (relative, *tolerances)):
        raise ValueError("expected a tolerance of at least 0 for each answer")
    return Gold(tuple(answers), str(unit), float(relative), tolerances)


# ---------------------------------------------------------------- numbers


class _Quantity(NamedTuple):
    value: float
    unit: str


def _all_close(stated: Sequence[_Quantity], wanted: Sequence[_Quantity], gold: Gold) -> bool:
    """Whether the answers are close, paired by size: this is right if tolerances are small compared to distances."""
    tolerances = gold.absolute or [gold.relative * abs(want.value) for want in wanted]
    pairs = zip(sorted(stated), sorted(zip(wanted, tolerances, strict=True)), strict=True)
    return all(_close(answer, want, tolerance) for answer, (want, tolerance) in pairs)


def _close(answer: _Quantity, want: _Quantity, tolerance: float) -> bool:
    same_unit = not answer.unit or not want.unit or answer.unit == want.unit
    rounding = 1e-12 * abs(want.value)  # error of the difference: in binary, 1.1 - 1 is more than 0.1
    return same_unit and abs(answer.value - want.value) <= tolerance + rounding


def _quantities(text: str) -> list[_Quantity] | None:
    """The numbers of an answer; None if any part of it is no number."""
    node = parsed(text)
    nodes = node.items if isinstance(node, Items) and node.kind in ("list", "set") else [node]
    found = [_quantity(node) for node in nodes]
    return None if None in found else found


def _quantity(node: Node | None) -> _Quantity | None:
    if isinstance(node, Relation) and node.operators == ("=",) and isinstance(node.sides[0], Symbol):
        node = node.sides[1]
    unit = node.unit if isinstance(node, Quantity) else ""
    node = node.value if isinstance(node, Quantity) else node
    if node is None or symbols(node):
        return None
    try:
        [value], _, _ = evaluate((node,), {}, False)
        return _Quantity(float(value), unit)
    except (Undefined, TooLarge, Unknown, TypeError, OverflowError):
        return None
