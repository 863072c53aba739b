"""Public verifier cases, published golds and published verdicts, where the files are at hand (see `shared_file`)."""

import contextlib
import json
import os
import re
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from pods_jax.data import DATASETS
from pods_jax.rewards import VERIFIERS, RewardPool, Verdict, check_gold
from pods_jax.rewards.grammar import plain_number
from pods_jax.rewards.grammar.equality import equivalent
from pods_jax.rewards.grammar.parse import Unparsable, parse

SHARED = Path(os.environ.get("PODS_JAX_SHARED", Path(__file__).parents[3] / "shared"))

# Cases without a right answer, in which docs/rewards.md decides otherwise than the file.
DECIDED_OTHERWISE = {"gsm8k-marker-05", "gsm8k-number-format-24"}


def shared_file(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand: set PODS_JAX_SHARED to the folder that holds it")
    return path


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in shared_file(name).read_text(encoding="utf-8").splitlines()]


def timed(pool: RewardPool, case: dict) -> tuple[Verdict, float]:
    start = time.perf_counter()
    [verdict] = pool.score([case["output"]], [case["gold"]], case["task"])
    return verdict, time.perf_counter() - start


def test_every_case_is_judged_as_decided_and_in_time():
    cases = rows("cases/verifier_cases.jsonl")
    wrong, slow = set(), set()
    with RewardPool(num_workers=1) as pool:
        pool.score([r"\boxed{x}"], ["y"], "math")  # the worker starts here
        for case in cases:
            limit_s = 0.5 if case["must_be_fast"] else 2.0
            verdict, seconds = timed(pool, case)
            if seconds > limit_s and timed(pool, case)[1] > limit_s:  # twice: other work may take the processor
                slow.add(case["id"])
            if verdict.correct != case["correct"] or verdict.reason in ("timeout", "crashed"):
                wrong.add(case["id"])
    assert wrong == DECIDED_OTHERWISE
    assert {case["id"] for case in cases if case["debatable"]} >= DECIDED_OTHERWISE
    assert not slow


@pytest.fixture(scope="module")
def math_golds() -> list[str]:
    data = DATASETS["math"](str(shared_file("data/math")), {}, 0)
    assert (len(data.train), len(data.test), data.skipped) == (7498, 5000, 2)  # two solutions have an empty box
    return [example.gold for example in data.train + data.test]


@pytest.mark.parametrize(
    ("name", "folder", "counts"),
    [
        ("gsm8k", "data/gsm8k", (7473, 1319)),
        ("amc23", "data/amc23", (0, 40)),
        ("minerva", "data/minerva_math", (0, 272)),
        ("sciknoweval_chemistry", "data/sciknoweval_chemistry", (7495, 200)),
    ],
)
def test_every_published_gold_equals_itself(name, folder, counts):
    data = DATASETS[name](str(shared_file(folder)), {}, 0)
    assert (len(data.train), len(data.test)) == counts
    for example in data.train + data.test:
        check_gold(example.gold, data.task)


@pytest.mark.parametrize(
    ("stride", "num_formulas", "num_unparsed"),
    [(5, 599, 2), pytest.param(1, 2971, 8, marks=pytest.mark.slow)],
)
def test_every_math_gold_equals_itself_and_nearly_all_are_parsed(math_golds, stride, num_formulas, num_unparsed):
    """stride: of the golds that are tried."""
    golds = math_golds[::stride]
    beyond_the_cheap_layer = [gold for gold in golds if plain_number(gold) is None]
    assert len(beyond_the_cheap_layer) == num_formulas
    unparsed = []
    for gold in golds:
        check_gold(gold, "math")
    for gold in beyond_the_cheap_layer:
        try:
            tree = parse(gold)
        except Unparsable:
            unparsed.append(gold)
            continue
        with contextlib.suppress(Unparsable):  # braces give another tree to lists and units
            assert equivalent(tree, parse(f"{{{gold.rstrip('.')}}}")), gold
    assert len(unparsed) == num_unparsed, unparsed


def test_golds_with_roots_are_equal_exactly_where_sympy_finds_equal_values(math_golds):
    """All pairs of real constants among the golds; latex2sympy2_extended reads them on its own."""
    latex = pytest.importorskip("latex2sympy2_extended", reason="the oracle is not installed")
    constant = re.compile(r"[-+\d\s\\sqrtfac{}]*")
    values = {}
    for gold in sorted({gold for gold in math_golds if r"\sqrt" in gold and constant.fullmatch(gold)})[:300]:
        with contextlib.suppress(Exception):  # the oracle cannot read all of them
            values[gold] = latex.latex2sympy(gold).evalf(40)
    golds = list(values)[:45]
    assert len(golds) == 45
    for first in golds:
        for second in golds:
            same = abs(values[first] - values[second]) < 1e-30
            assert VERIFIERS["math"].verify(rf"\boxed{{{second}}}", first).correct == same, (first, second)


def test_rational_golds_are_equal_exactly_where_their_values_are(math_golds):
    golds = sorted({gold for gold in math_golds if re.fullmatch(r"-?\d+(?:\.\d+)?", gold)})[:150]
    for first in golds:
        for second in golds:
            correct = VERIFIERS["math"].verify(rf"\boxed{{{second}}}", first).correct
            assert correct == (Fraction(first) == Fraction(second)), (first, second)


def kind(row: dict, verdict) -> str:
    """Why a verdict differs from the published one; docs/rewards.md has the table."""
    text, answer = row["completion"], verdict.answer or ""
    if not row["published_correct"]:
        return "published verdict refuses an equal answer"
    if verdict.reason != "no answer":
        if any(sign in answer for sign in ("=", "*", "+")):
            return "a calculation as the answer"
        return "a sentence as the answer" if " " in answer else "a unit of one letter"
    last_thought, opened, closed = (text.rfind(tag) for tag in ("</think>", "<answer>", "</answer>"))
    if 0 <= opened < closed < last_thought or 0 <= opened < last_thought:
        return "the reasoning ends after the answer"
    if opened >= 0:
        return "the answer tag is not closed"
    return "the answer tag is not opened" if closed >= 0 else "no mark at all"


def test_differences_from_the_published_verdicts_are_of_known_kinds():
    completions = rows("cases/model_completions.jsonl")
    judged = [(row, VERIFIERS["math"].verify(row["completion"], row["gold"])) for row in completions]
    different = [(row, verdict) for row, verdict in judged if verdict.correct != row["published_correct"]]
    kinds = Counter(kind(row, verdict) for row, verdict in different)
    assert kinds == {
        "no mark at all": 31,
        "the answer tag is not opened": 23,
        "the answer tag is not closed": 22,
        "the reasoning ends after the answer": 7,
        "a calculation as the answer": 8,
        "a sentence as the answer": 6,
        "a unit of one letter": 3,
        "published verdict refuses an equal answer": 5,
    }


def test_the_lenient_rule_agrees_with_the_published_verdicts():
    completions = rows("cases/model_completions.jsonl")
    different = [
        row
        for row in completions
        if VERIFIERS["pods_lenient"].verify(row["completion"], row["gold"]).correct != row["published_correct"]
    ]
    assert len(different) <= 8
