"""No output makes a verifier raise, run long, or touch the file system; and a pool that is mistreated keeps count."""

import operator
import os
import random
import time

import misbehaving_verifiers  # noqa: F401  registers "misbehave"
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pods_jax.rewards import VERIFIERS, RewardPool, Verdict

GOLDS = {
    "exact": "12",
    "gsm8k": "12",
    "math": r"\frac{\sqrt{3}}{2}",
    "pods_lenient": r"(1, \infty)",
    "choice": "B",
    "filling": "2H2 + O2 = 2H2O",
    "sciknoweval": "Yes",
}
WORDS = r"""
\frac \sqrt \boxed{ { } ( ) [ ] \{ \} | ^ _ ! % \% $ \$ & \\ , ; : . = < > \le \in \cup \pm \mp + - * / \cdot
\begin{pmatrix} \end{pmatrix} \text{ and or not x y i e pi sin \log \infty ^\circ 1 23 0.5 1/2 10^ 9e99 99999999
<think> </think> <answer> </answer> #### answer: A B Yes H2O -> = __import__('os') é ² ½ ٣ １
"""
PIECES = st.sampled_from([*WORDS.split(), "\ud800", "answer is"])
OUTPUTS = (
    st.lists(PIECES, max_size=30).map("".join) | st.lists(PIECES, max_size=30).map(" ".join) | st.text(max_size=200)
)
BOXED = OUTPUTS.map(lambda text: rf"\boxed{{{text}}}") | OUTPUTS


@pytest.fixture(scope="module")
def writes() -> list[str]:
    """The files that were opened for writing in this process since, by an audit hook that cannot be taken off."""
    import sys

    opened: list[str] = []

    def watch(event: str, arguments: tuple) -> None:
        if event in ("os.system", "subprocess.Popen", "os.exec", "os.remove", "os.rename", "socket.connect"):
            opened.append(event)
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            opened.append(str(arguments[0]))

    sys.addaudithook(watch)
    return opened


@pytest.mark.parametrize("task", GOLDS)
@given(output=BOXED)
@settings(max_examples=150)
def test_every_output_gets_a_verdict_at_once_and_leaves_no_trace(writes, task, output):
    del writes[:]
    start = time.process_time()
    verdict = VERIFIERS[task].verify(output, GOLDS[task])
    assert time.process_time() - start < 1.0
    assert isinstance(verdict, Verdict)
    assert verdict.correct == (verdict.reason == "match")
    assert not writes


@given(output=BOXED, gold=BOXED)
@settings(max_examples=150)
def test_math_golds_of_any_kind_are_compared_without_an_exception(output, gold):
    if gold.strip():
        assert isinstance(VERIFIERS["math"].verify(output, gold), Verdict)


def filled(templates: list[str], contents: st.SearchStrategy) -> st.SearchStrategy[str]:
    return st.builds(operator.mod, st.sampled_from(templates), contents)


LEAVES = r"x y n e i \pi \infty 0 1 2 7 0.5 100 -1 \frac12 10^{30} 99999"


def formulas() -> st.SearchStrategy[str]:
    """Formulas that parse, so that evaluation is reached."""
    leaves = st.sampled_from(LEAVES.split())

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        one = [r"\sqrt{%s}", r"\sqrt[3]{%s}", r"\sqrt[8]{%s}", "(%s)!", "|%s|", r"\lfloor %s \rfloor", "-(%s)"]
        one += [rf"\{name}(%s)" for name in ("sin", "tan", "sec", "arcsin", "sinh", "ln", "exp")]
        two = ["(%s+%s)", r"{%s}\cdot{%s}", r"\frac{%s}{%s}", "(%s)^{%s}", r"\binom{%s}{%s}", r"%s \pm %s"]
        two += [r"\gcd(%s,%s)", r"\log_{%s}(%s)", r"\max(%s,%s)"]
        pairs = st.tuples(inner, inner)
        return filled(one, inner) | filled(two, pairs)

    return st.recursive(leaves, larger, max_leaves=8)


FORMULAS = formulas()
ANSWERS = FORMULAS | filled(
    ["%s, %s", "(%s,%s)", r"[%s,%s)\cup\{1\}", "%s=%s", r"%s<%s", r"%s \le x < %s"], st.tuples(FORMULAS, FORMULAS)
)


@given(answer=ANSWERS, gold=ANSWERS)
@settings(max_examples=400)
def test_formulas_of_any_kind_are_compared_without_an_exception_and_are_equal_to_themselves(answer, gold):
    start = time.process_time()
    assert isinstance(VERIFIERS["math"].verify(rf"\boxed{{{answer}}}", gold), Verdict)
    assert VERIFIERS["math"].verify(rf"\boxed{{{answer}}}", answer).correct
    assert time.process_time() - start < 2.0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are POSIX processes")
def test_ten_thousand_calls_with_hangs_and_crashes_are_all_accounted_for():
    rng = random.Random(0)
    golds = [rng.choices(["pass", "hang", "exit"], [98, 1, 1])[0] for _ in range(10_000)]
    with RewardPool(num_workers=2) as pool:
        verdicts = pool.score([str(i) for i in range(10_000)], golds, "misbehave", deadline_s=0.5)
    reasons = {"pass": "match", "hang": "timeout", "exit": "crashed"}
    assert [verdict.reason for verdict in verdicts] == [reasons[gold] for gold in golds]
    assert [v.answer for v in verdicts] == [str(i) if gold == "pass" else None for i, gold in enumerate(golds)]
