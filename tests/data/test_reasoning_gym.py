import json
import sys

import pytest

from pods_jax.data.examples import DATASETS
from pods_jax.data.reasoning_gym import load
from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool

reasoning_gym = pytest.importorskip("reasoning_gym", reason="the extra 'smollm2' is not installed")

SUMS = {
    "dataset": "chain_sum",
    "num_train": 50,
    "num_test": 30,
    "params": {"min_terms": 2, "max_terms": 2, "min_digits": 2, "max_digits": 2},
}


def questions(examples) -> set[str]:
    return {example.prompt for example in examples}


def test_sizes_splits_and_form():
    data = load(None, SUMS, seed=0)
    assert (len(data.train), len(data.test), data.task) == (50, 30, "reasoning_gym")
    assert len(questions(data.test)) == 30
    assert not questions(data.test) & questions(data.train)
    assert DATASETS["reasoning_gym"] is load
    for example in data.train:
        gold = json.loads(example.gold)
        assert gold["dataset"] == "chain_sum"
        assert set(gold["entry"]) == {"question", "answer", "metadata"}
        assert gold["entry"]["question"] == example.prompt
        left, operator, right = gold["entry"]["metadata"]["expression"].split()
        total = int(left) + int(right) if operator == "+" else int(left) - int(right)
        assert total == int(gold["entry"]["answer"])
        assert 10 <= int(left) <= 99


def test_the_seed_decides():
    assert load(None, SUMS, seed=0) == load(None, SUMS, seed=0)
    shared = questions(load(None, SUMS, seed=0).train) & questions(load(None, SUMS, seed=1).train)
    assert len(shared) < 10  # by chance; entries are drawn from seed + index, so a naive seed would share nearly all


ARC = pytest.param("arc_agi", marks=pytest.mark.slow)  # it reads all of ARC; rearc has grids, too


@pytest.mark.parametrize("dataset", ["chain_sum", "gsm_symbolic", "countdown", "n_queens", ARC, "rearc"])
def test_every_gold_verifies_itself(dataset):
    data = load(None, {"dataset": dataset, "num_train": 8, "num_test": 4}, seed=3)
    golds = [example.gold for example in data.train + data.test]
    answers = [f"<answer>{json.loads(gold)['entry']['answer']}</answer>" for gold in golds]
    with RewardPool(num_workers=1) as pool:
        verdicts = pool.score(answers, golds, data.task, deadline_s=20)
        swapped = pool.score(answers[1:] + answers[:1], golds, data.task, deadline_s=20)
    assert all(verdict.correct for verdict in verdicts)
    assert sum(verdict.correct for verdict in swapped) < len(golds) / 2


@pytest.mark.parametrize(
    ("dataset", "constant"),
    [("puzzle24", "6\\+6\\+6\\+6"), ("complex_arithmetic", "nan"), ("coin_flip", "0"), ("game_of_life_halting", "0")],
)
def test_data_sets_that_pay_a_constant_are_refused_by_name_and_answer(dataset, constant):
    message = rf"'{dataset}': its scorer gives the answer '{constant}' the full score on \d+ of 24 problems"
    with pytest.raises(UserError, match=message):
        load(None, {"dataset": dataset, "num_train": 8, "num_test": 4}, seed=3)


@pytest.mark.parametrize(
    "dataset", ["syllogism", "course_schedule", "letter_counting", "circuit_logic", "self_reference"]
)
def test_a_frequent_gold_is_no_reason_to_refuse(dataset):
    for seed in range(3):
        assert load(None, {"dataset": dataset, "num_train": 8, "num_test": 4}, seed=seed).train


def test_a_generator_that_gives_up_is_a_user_error(monkeypatch):
    class GivesUp:
        def __getitem__(self, index):
            raise RuntimeError("no path found")

    monkeypatch.setattr(reasoning_gym, "create_dataset", lambda *args, **kw: GivesUp())
    with pytest.raises(UserError, match="'chain_sum' failed to make a problem: no path found"):
        load(None, SUMS, seed=0)


def test_a_scorer_that_pays_whatever_it_is_given_is_refused(monkeypatch):
    monkeypatch.setattr(reasoning_gym, "get_score_answer_fn", lambda name: lambda answer, entry: 1.0)
    with pytest.raises(UserError, match="'chain_sum': its scorer gives the answer '' the full score on 24 of 24"):
        load(None, SUMS, seed=0)


def test_entries_that_json_cannot_hold_are_told_as_such(monkeypatch):
    scorer = reasoning_gym.get_score_answer_fn("chain_sum")

    def needs_the_object(answer, entry):
        return scorer(answer, entry) * (entry.get("kept") is not None)

    create = reasoning_gym.create_dataset
    monkeypatch.setattr(
        reasoning_gym, "create_dataset", lambda *args, **kw: [entry | {"kept": 1} for entry in create(*args, **kw)]
    )
    monkeypatch.setattr(reasoning_gym, "get_score_answer_fn", lambda name: needs_the_object)
    with pytest.raises(UserError, match="'chain_sum': its entries do not survive being written as JSON"):
        load(None, SUMS | {"num_train": 2, "num_test": 1}, seed=0)


def test_entries_that_nobody_could_solve_are_left_out(monkeypatch):
    scorer = reasoning_gym.get_score_answer_fn("chain_sum")

    def dislikes_odd_answers(answer, entry):
        return scorer(answer, entry) * (int(entry["answer"]) % 2 == 0)

    monkeypatch.setattr(reasoning_gym, "get_score_answer_fn", lambda name: dislikes_odd_answers)
    data = load(None, SUMS, seed=0)
    assert all(int(json.loads(example.gold)["entry"]["answer"]) % 2 == 0 for example in data.train + data.test)
    assert len(data.train) == 50


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "chainsum"}, "data set 'chainsum' is unknown: did you mean 'chain_sum'"),
        ({"params": {"min_term": 2}}, "parameter 'min_term' is unknown: did you mean 'min_terms'"),
        ({"params": {"seed": 2}}, "parameter 'seed' is unknown"),
        ({"params": {"min_terms": 3, "max_terms": 2}}, "bad params .* max_terms must be >= min_terms"),
        ({"params": {"min_terms": "two"}}, "bad params"),
        ({"dataset": "composite", "params": {}}, "bad params"),
        ({"dataset": "rubiks_cube", "params": {}}, "its scorer rejects its own answers"),
        ({"num_trains": 5}, "option 'num_trains' is unknown: did you mean 'num_train'"),
        ({"num_train": 0}, "must be at least 1"),
        ({"params": SUMS["params"] | {"min_digits": 1, "max_digits": 1}, "num_test": 200}, "of 200 different test"),
    ],
)
def test_bad_options_are_named(changes, message):
    with pytest.raises(UserError, match=message):
        load(None, SUMS | changes, seed=0)


def test_missing_options_and_a_path_are_named():
    with pytest.raises(UserError, match="missing option 'num_test'"):
        load(None, {"dataset": "chain_sum", "num_train": 5}, seed=0)
    with pytest.raises(UserError, match=r"data\.path must be None"):
        load("file.jsonl", SUMS, seed=0)


def test_a_missing_package_is_a_user_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=r"pip install -e '.\[smollm2\]'"):
        load(None, SUMS, seed=0)
