import json
import os
import sys

import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool, verify
from pods_jax.rewards.verifiers import reasoning_gym as verifier

needs_package = pytest.mark.usefixtures("reasoning_gym")


@pytest.fixture(scope="module")
def reasoning_gym():
    return pytest.importorskip("reasoning_gym", reason="the extra 'smollm2' is not installed")


@pytest.fixture(scope="module")
def pool():
    with RewardPool(num_workers=1) as pool:
        yield pool


def gold_of(dataset: str, answer: str, **metadata) -> str:
    return json.dumps({"dataset": dataset, "entry": {"question": "?", "answer": answer, "metadata": metadata}})


def reasons(pool, outputs, gold):
    return [verdict.reason for verdict in pool.score(outputs, [gold] * len(outputs), "reasoning_gym", deadline_s=10)]


@pytest.mark.parametrize(
    ("output", "gold_answer", "answer"),
    [
        ("12 + 30 = 42", "42", "42"),
        ("42", "42", "42"),
        ("The answer is 42.", "42", "42"),
        ("12 + 30 = 42\n42 - 2 = 40\n", "40", "40"),
        ("<think>1 = 1</think>\n<answer>42</answer>", "42", "42"),
        ("A=1, B=2", "A=1,B=2", "A=1, B=2"),
        ("0 1\n1 0", "0 1\n1 0", "0 1\n1 0"),
        ("", "42", ""),
        ("12 + 30 =", "42", ""),
    ],
)
def test_how_an_answer_is_read(output, gold_answer, answer):
    assert verifier.read_answer(output, gold_answer) == answer


@needs_package
def test_verdicts_are_those_of_the_data_sets_own_scorer(pool):
    outputs = ["12 + 30 = 42", "42", "42.0", "The answer is 42.", "43", "421", "", "it is 42 I think", "nan", "42e0"]
    verdicts = [
        "match",
        "match",
        "match",
        "match",
        "mismatch",
        "mismatch",
        "no answer",
        "mismatch",
        "mismatch",
        "match",
    ]
    assert reasons(pool, outputs, gold_of("chain_sum", "42")) == verdicts


@needs_package
def test_verify_runs_it_in_a_worker():
    assert verify("12 + 30 = 42", gold_of("chain_sum", "42"), "reasoning_gym")
    assert not verify("12 + 30 = 41", gold_of("chain_sum", "42"), "reasoning_gym")


@needs_package
def test_arithmetic_answers_are_evaluated_and_nothing_else_is(pool, tmp_path):
    gold = gold_of("countdown", "2*3 + 4", numbers=[2, 3, 4], target=10)
    trace = tmp_path / "ran"
    attacks = [
        f"<answer>open({str(trace)!r}, 'w')</answer>",
        f"<answer>__import__('os').mkdir({str(trace)!r})</answer>",
        "<answer>[].__class__</answer>",
        "<answer>9**9**9**9</answer>",
        "<answer>print(10) or 10</answer>",
    ]
    assert reasons(pool, ["<answer>4 + 3*2</answer>", "<answer>4*3 - 2</answer>"], gold) == ["match"] * 2
    assert reasons(pool, ["<answer>4 + 3 + 2</answer>"], gold) == ["mismatch"]
    assert set(reasons(pool, attacks, gold)) == {"mismatch"}
    attacks = [attack.replace("open", "[open") for attack in attacks]
    assert set(reasons(pool, attacks, gold_of("spiral_matrix", "1 2 3"))) == {"mismatch"}
    assert not os.path.exists(trace)


@needs_package
def test_without_the_guard_the_attack_would_run(reasoning_gym, tmp_path):
    trace = tmp_path / "ran"
    entry = json.loads(gold_of("countdown", "2*3 + 4", numbers=[2, 3, 4], target=10))["entry"]
    reasoning_gym.get_score_answer_fn("countdown")(f"open({str(trace)!r}, 'w')", entry)
    assert trace.exists()


@needs_package
def test_data_sets_that_must_run_answers_are_refused(pool):
    gold = gold_of("simple_integration", "X**2 + C", variable="X", integrand="2*X")
    with pytest.raises(UserError, match="does not get the full score"):
        reasons(pool, ["<answer>X**2 + C</answer>"], gold)


@needs_package
@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("42", "is not"),
        ("{", "is not"),
        ('{"dataset": "chain_sum"}', "is not"),
        (gold_of("chain_sums", "42"), "did you mean 'chain_sum'"),
        (gold_of("gsm_symbolic", "forty-two"), "does not get the full score"),
    ],
)
def test_bad_golds_are_user_errors(pool, gold, message):
    with pytest.raises(UserError, match=message):
        reasons(pool, ["42"], gold)


def test_a_missing_package_is_a_user_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    verifier._package.cache_clear()
    with pytest.raises(UserError, match=r"pip install -e '.\[smollm2\]'"):
        verifier.prepare()
