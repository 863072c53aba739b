"""Evaluations: on several sets, of restricted samples, and by the clock."""

import itertools

import numpy as np
import pytest

from pods_jax.config.schema import TrainingConfig, from_mapping
from pods_jax.config.validate import violations
from pods_jax.io import read_jsonl
from pods_jax.rewards import RewardPool
from pods_jax.training import Reporter, evaluate_checkpoint, loop, train
from pods_jax.training.evaluation import evaluate, majority, pass_at
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run


def built(config):
    config, problems = from_mapping(config)
    assert not problems + violations(config)
    return config


@pytest.fixture
def trained(tiny):
    """A policy that is right now and then."""
    tiny.warm_start.num_steps = 60
    tiny.evaluation.num_prompts, tiny.evaluation.num_samples, tiny.evaluation.greedy = 8, 4, True
    return tiny


def scores(config):
    with RewardPool(1) as pool:
        run = make_run(built(config), load_data(built(config)), pool, lambda *_: None)
        return evaluate(run)


def test_the_same_set_under_a_prefix_has_the_same_scores(trained, tmp_path, capsys):
    sets = {
        "again": {"name": "addition", "options": trained.data.options.to_dict()},
        "some": {"name": "addition", "options": {"base": 3, "digits": 2, "num_train": 9, "num_test": 9},
                 "num_prompts": 5, "num_samples": 0},
    }  # fmt: skip
    trained.training.num_steps, trained.training.eval_every_steps = 2, 0
    train(built(trained), tmp_path / "run", Reporter())
    alone = read_jsonl(tmp_path / "run" / "eval.jsonl")[-1]
    trained.evaluation.sets = sets
    found = evaluate_checkpoint(built(trained), tmp_path / "run", Reporter())
    assert "8 test problems, 8 of again, 5 of some" in capsys.readouterr().out
    first = {k: v for k, v in found.items() if not k.startswith(("again/", "some/"))}
    assert 0 < first["accuracy"] < 1
    assert first == {k: alone[k] for k in first}
    assert {k.removeprefix("again/"): v for k, v in found.items() if k.startswith("again/")} == first
    assert {k for k in found if k.startswith("some/")} == {f"some/greedy_{k}" for k in ("accuracy", "format", "both")}
    assert found["some/greedy_accuracy"] * 5 == pytest.approx(round(found["some/greedy_accuracy"] * 5))


def test_completions_do_not_depend_on_the_batches(tiny):
    """A problem's random numbers are named by its place in the set, and the policy is uncertain enough to show it."""
    tiny.evaluation.num_prompts, tiny.evaluation.num_samples, tiny.evaluation.greedy = 8, 2, True
    found = []
    for size in (8, 3):
        tiny.evaluation.batch_size = size
        tokens, ids = [], []
        with RewardPool(1) as pool:
            run = make_run(built(tiny), load_data(built(tiny)), pool, lambda *_: None)
            generate = run.engine.generate

            def noted(orders, sampling, generate=generate, tokens=tokens, ids=ids):
                completions = generate(orders, sampling)
                ids.extend(orders.prompt_ids)
                tokens.extend(completions.tokens.tolist())
                return completions

            run.engine.generate = noted
            scores_found = evaluate(run)
        found.append((scores_found, tokens))
        assert ids == [*range(8), *range(8)]  # sampled, then greedy
    assert found[0] == found[1]
    assert len({str(row) for row in found[0][1][:8]}) > 4


@pytest.fixture(scope="module")
def kept():
    """What one test leaves for the next."""
    return {}


@pytest.fixture
def free(kept, trained):
    """The scores of unrestricted samples, evaluated once."""
    if not kept:
        kept.update(scores(trained))
    return kept


@pytest.mark.parametrize("restriction", [{"top_k": 1}, {"top_p": 1e-6}], ids=str)
def test_the_one_token_that_is_left_is_the_greedy_one(trained, free, restriction):
    trained.evaluation.update(restriction)
    restricted = scores(trained)
    assert restricted["accuracy"] == restricted["greedy_accuracy"] == free["greedy_accuracy"]
    assert free["accuracy"] != free["greedy_accuracy"]


def test_evaluations_fall_on_the_first_step_after_each_period(tiny, tmp_path, monkeypatch):
    """Steps of 30 seconds: a period of 75 ends in the steps that end at 90 and at 150."""
    monkeypatch.setattr(loop, "from_main", lambda _: 30.0)
    tiny.training.eval_every_steps, tiny.training.eval_every_minutes = 0, 1.25
    train(built(tiny), tmp_path / "run", Reporter())
    assert [e["step"] for e in read_jsonl(tmp_path / "run" / "eval.jsonl")] == [0, 3, 5, 6]


def test_checkpoints_are_written_once_the_minutes_have_passed(tiny, tmp_path, monkeypatch):
    """Steps of 30 seconds: a minute has passed after two, and again after two more; the last step is always saved."""
    monkeypatch.setattr(loop, "from_main", lambda _: 30.0)
    saved = []
    monkeypatch.setattr(loop, "_save", lambda run, folder, checkpoints, step: saved.append(step))
    tiny.training.num_steps, tiny.training.eval_every_steps = 7, 0
    tiny.training.checkpoint_every_steps, tiny.training.checkpoint_every_minutes = 0, 1.0
    train(built(tiny), tmp_path / "run", Reporter())
    assert saved == [2, 4, 6, 7]
    assert TrainingConfig().checkpoint_every_minutes > 0


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({"x": {}}, "evaluation.sets.x: data set 'x' is unknown"),
        ({"math500": {"num_sample": 3}}, "unknown key evaluation.sets.math500.num_sample"),
        ({"math500": 3}, "evaluation.sets.math500 must be a mapping, got 3"),
        ({"math500": {"num_prompts": 0}}, "evaluation.sets.math500: num_prompts must be positive"),
    ],
    ids=str,
)
def test_mistakes_in_the_sets_are_named(tiny, sets, message):
    tiny.evaluation.sets = sets
    config, problems = from_mapping(tiny)
    assert not problems
    assert any(message in problem for problem in violations(config))


# ---------------------------------------------------------------- pass@k and maj@k


@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (6, 3), (5, 5)])
def test_pass_at_k_is_the_mean_over_all_subsets(n, k):
    """Over every way to draw k of the n samples."""
    correct = np.arange(n) < np.arange(n + 1)[:, None]  # 0 to n right ones
    expected = [np.mean([row[list(drawn)].any() for drawn in itertools.combinations(range(n), k)]) for row in correct]
    np.testing.assert_allclose(pass_at(k, correct), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        (["3", "3", "4"], [1, 1, 0], 1.0),
        (["4", "4", "3"], [0, 0, 1], 0.0),
        (["3", "4", None, None], [1, 0, 0, 0], 0.5),  # a tie, and two without a vote
        ([None, None], [0, 0], 0.0),
        (["a", "b", "c"], [0, 0, 1], 1 / 3),
    ],
)
def test_the_most_frequent_answer_is_what_counts(answers, correct, expected):
    assert majority([answers], np.array([correct], bool)) == [pytest.approx(expected)]


def test_several_samples_have_pass_at_k(free):
    assert free["pass@1"] == pytest.approx(free["accuracy"])
    assert free["pass@1"] <= free["pass@2"] <= free["pass@4"]
    assert 0 <= free["maj@4"] <= free["pass@4"]


def test_greedy_completions_may_be_left_out_and_lengths_be_evaluations_own(trained):
    trained.evaluation.greedy = False
    trained.evaluation.max_completion_length = 1
    found = scores(trained)
    assert not any(name.startswith("greedy") for name in found)
    assert found["mean_length"] == 1
    trained.evaluation.num_samples = 0
    assert violations(from_mapping(trained)[0]) == [
        "evaluation.greedy = False leaves nothing to evaluate where num_samples is 0"
    ]
