"""Rollouts of several turns: what they hold, that they repeat, and that training never sees an observation."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import parrot  # noqa: F401 - registers the environment
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.config.validate import violations
from pods_jax.data import Example
from pods_jax.environments import register
from pods_jax.errors import UserError
from pods_jax.groups import Request, joined
from pods_jax.io import read_jsonl
from pods_jax.rewards import RewardPool
from pods_jax.rollout import token_logprobs
from pods_jax.rollout.engine import serving
from pods_jax.training import Reporter, train
from pods_jax.training.experience import orders_of, training_params, verified_groups
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run
from pods_jax.training.threads import DaemonThreads
from pods_jax.training.turns import Partners

KEY = jax.random.key(0)
EOS = 1


@pytest.fixture
def turns(tiny):
    """The tiny experiment with a parrot."""
    tiny.environment.name, tiny.environment.max_turns = "parrot", 3
    tiny.rollout.max_completion_length = 14
    tiny.reward.parts = {"correctness": 1.0, "environment": 1.0}
    return tiny


def built(values):
    config, problems = from_mapping(values)
    assert not problems + violations(config)
    return config


@pytest.fixture
def make(turns):
    with RewardPool(1) as pool:

        def make(**environment):
            turns.environment.update(environment)
            config = built(turns)
            return make_run(config, load_data(config), pool, lambda *_: None)

        yield make


def groups_of(run, requests, key=KEY):
    examples = run.rewarder.examples_of([request.prompt for request in requests])
    with serving(run.engine, 0):
        completions = run.generate(orders_of(requests, key), training_params(run.config.rollout), examples)
    return verified_groups(run.rewarder, requests, completions, 0)


def pieces(group, i):
    """A rollout's turns and observations in order, as (whether it is a turn, token ids)."""
    length = group.lengths[i]
    cuts = 1 + np.flatnonzero(np.diff(group.loss_mask[i, :length]))
    tokens = np.split(group.tokens[i, :length], cuts)
    own = np.split(group.loss_mask[i, :length], cuts)
    return [(bool(mask[0]), ids.tolist()) for mask, ids in zip(own, tokens, strict=True)]


def test_turns_and_observations_alternate(make):
    run = make()
    groups = groups_of(run, [Request(p, 8) for p in run.stream.next(6)])
    decode = run.data.tokenizer.decode
    seen = set()
    for group in groups:
        assert not group.loss_mask[np.arange(14) >= group.lengths[:, None]].any()
        assert not group.logprobs[~group.loss_mask].any()
        for i in range(8):
            found = pieces(group, i)
            own = [ids for is_turn, ids in found if is_turn]
            assert [is_turn for is_turn, _ in found] == [True, False] * (len(own) - 1) + [True]
            for turn, (_, observation) in zip(own, found[1::2], strict=False):
                assert turn[-1] == EOS  # of each turn but the last
                assert decode(observation) == group.request.prompt.text[0] + decode(turn)[-2:]
            assert group.truncated[i] == (own[-1][-1] != EOS or (len(own) < 3 and group.lengths[i] + 3 >= 14))
            assert (len(own) == 3) or group.truncated[i]
            shown = [turn for turn in own if turn[-1] == EOS]
            assert group.parts["environment"][i] == sum(len(decode(turn)) for turn in shown) / 8
            assert group.correct[i] == (decode(own[-1]) == group.request.prompt.gold)
            assert group.rewards[i] == group.correct[i] + np.float32(group.parts["environment"][i])
            seen.add((len(own), bool(group.truncated[i])))
    assert seen >= {(1, True), (2, True), (3, False)}


def test_a_turns_logprobs_are_those_of_the_policy_that_has_seen_all_before(make):
    run = make()
    [group] = groups_of(run, [Request(*run.stream.next(1), 8)])
    prompt = group.request.prompt.tokens
    rows = jnp.asarray(np.concatenate([np.tile(np.int32(prompt), (8, 1)), group.tokens], axis=1))
    sizes = jnp.full(8, len(prompt)), jnp.asarray(group.lengths)
    expected = token_logprobs(run.model, run.state.params, rows, *sizes, max_completion_length=14)
    assert group.loss_mask[:, 4:].any()
    np.testing.assert_allclose(
        group.logprobs[group.loss_mask], np.asarray(expected)[group.loss_mask], rtol=0, atol=1e-5
    )


def test_a_rollout_does_not_depend_on_the_others(make):
    """Pilots and commits, in another order and other sizes."""
    run = make()
    a, b = run.stream.next(2)
    whole = groups_of(run, [Request(a, 6), Request(b, 6)])
    parts = groups_of(run, [Request(b, 2, "pilot")]) + groups_of(run, [Request(b, 4, "commit", 2), Request(a, 3)])
    for got, expected in ((joined(parts[:2]), whole[1]), (parts[2], whole[0])):
        rows = slice(len(got.rewards))
        np.testing.assert_array_equal(got.tokens, expected.tokens[rows])
        np.testing.assert_array_equal(got.loss_mask, expected.loss_mask[rows])
        np.testing.assert_array_equal(got.rewards, expected.rewards[rows])
        np.testing.assert_allclose(got.logprobs, expected.logprobs[rows], rtol=0, atol=1e-5)


def test_each_turn_draws_numbers_of_its_own(make):
    """Where the parrot is silent, a second turn that drew the first one's numbers would often repeat it."""
    run = make(options={"memory": 0})
    run.state = run.state._replace(params=jax.tree.map(lambda x: 0 * x, run.state.params))  # uniform, whatever it sees
    groups = groups_of(run, [Request(p, 8) for p in run.stream.next(8)])
    rows = [g.tokens[i, : g.lengths[i]].tolist() for g in groups for i in range(8)]
    pairs = [(row[: row.index(EOS) + 1], row[row.index(EOS) + 1 :]) for row in rows if EOS in row[:-1]]
    assert len(pairs) > 20
    assert np.mean([second[: len(first)] == first for first, second in pairs]) < 0.3  # 1/7 of them are one token long


# ---------------------------------------------------------------- one turn


def untimed(path):
    return [{k: v for k, v in r.items() if "time" not in k and "turns/" not in k} for r in read_jsonl(path)]


def test_one_turn_without_observations_is_the_ordinary_path_to_the_bit(turns, tmp_path):
    turns.reward.parts = {"correctness": 1.0}
    turns.objective.update({"loss_type": "dapo", "beta": 0.1, "num_iterations": 2, "top_entropy_quantile": 0.5})
    turns.environment.options = {"turns": 1}
    train(built(turns), tmp_path / "parrot", Reporter())
    turns.environment.update({"name": None, "options": {}})
    train(built(turns), tmp_path / "plain", Reporter())
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert untimed(tmp_path / "parrot" / name) == untimed(tmp_path / "plain" / name)


# ---------------------------------------------------------------- whole runs


DYING_RUN = """
import json, os, signal, sys
import parrot
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train

class Dies(Reporter):
    def step(self, metrics):
        self.done = getattr(self, "done", 0) + 1
        if self.done == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

train(from_mapping(json.loads(sys.argv[1]))[0], sys.argv[2], Dies())
"""


@pytest.mark.slow
def test_a_killed_run_with_a_buffer_goes_on_to_the_same_end(turns, tmp_path):
    """Under Pilot-Commit, whose buffer holds groups with masks between steps."""
    turns.allocation.name = "pilot_commit"
    turns.allocation.options = {"criterion": "reward"}
    config = built(turns)
    train(config, tmp_path / "whole", Reporter())
    arguments = [json.dumps(turns.to_dict()), str(tmp_path / "killed"), "5"]
    here = Path(__file__).parent
    died = subprocess.run([sys.executable, "-c", DYING_RUN, *arguments], capture_output=True, cwd=here)
    assert died.returncode == -9, died.stderr.decode()
    train(config, tmp_path / "killed", Reporter())
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert untimed(tmp_path / "killed" / name) == untimed(tmp_path / "whole" / name)
    metrics = read_jsonl(tmp_path / "whole" / "metrics.jsonl")
    assert any(m["rollouts/buffered"] for m in metrics)
    assert all(m["turns/mean"] > 1 and m["turns/observation_tokens"] > 0 for m in metrics)
    differences = [m["sampling/sampling_logp_difference/max"] for m in metrics]
    assert all(x is None or x < 1e-4 for x in differences)


def test_accounts_and_lengths_are_of_the_policys_tokens(turns, tmp_path):
    turns.training.num_steps, turns.training.log_samples_every_steps = 2, 1
    turns.rollout.num_prompts = 1
    turns.allocation.name = "uniform"
    train(built(turns), tmp_path / "run", Reporter())
    first = read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]
    assert first["tokens/generated"] == pytest.approx(8 * first["completions/mean_length"])
    assert first["tokens/generated"] == first["tokens/trained"] + first["tokens/discarded"]
    assert first["completions/max_length"] + first["turns/observation_tokens"] < 14 + 6


@register("shy")
class Shy:
    """Waits in each step until another rollout's environment steps too."""

    together = threading.Barrier(2)

    def reset(self, example):
        pass

    def step(self, text):
        if threading.current_thread() is not threading.main_thread():
            self.together.wait(timeout=20)
        return "", 0.0, True


def test_environments_step_side_by_side(make):
    run = make(name="shy", num_threads=2)
    run.state = run.state._replace(params=jax.tree.map(lambda x: 0 * x, run.state.params))
    [group] = groups_of(run, [Request(*run.stream.next(1), 2)], jax.random.key(3))
    assert not group.truncated.any()


# ---------------------------------------------------------------- what does not fit


@register("loud")
class Loud:
    """Says what the tokenizer cannot write."""

    def reset(self, example):
        pass

    def step(self, text):
        return "HELLO", 0.0, False


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"name": "parot"}, "environment.name = 'parot' is unknown (did you mean 'parrot'?)"),
        ({"options": {"trns": 2}}, "environment.options of 'parrot': got an unexpected keyword argument 'trns'"),
        ({"max_turns": 0}, "environment.max_turns must be positive, got 0"),
        ({"num_threads": 0}, "environment.num_threads must be positive, got 0"),
        ({"name": None}, "reward.parts: 'environment' is what an environment gives: set environment.name"),
    ],
    ids=str,
)
def test_mistakes_in_the_config_are_named(turns, environment, message):
    turns.environment.update(environment)
    config, _ = from_mapping(turns)
    assert violations(config) == [message]


def test_an_observation_that_cannot_be_written_is_an_error_at_the_start(make):
    with pytest.raises(UserError, match="no id for the character 'E' in 'HELLO'"):
        make(name="loud")


# ---------------------------------------------------------------- several processes


def test_each_process_steps_the_environments_of_its_share(monkeypatch, turns):
    """The shares' answers, one after the other, are those of a process alone."""
    config = built(turns).environment
    examples = [Example(f"{i % 3}1=", "") for i in range(5)]
    live = np.array([0, 2, 3, 4])
    texts = ["12", "0", "", "210"]

    def answers(share):
        monkeypatch.setattr("pods_jax.training.turns.own_share", lambda size: share)
        with DaemonThreads(2) as threads:
            return Partners(config, examples, threads).step(live, texts)

    whole = answers(slice(0, 5))
    assert [step.observation for step in whole] == ["012", "20", "0", "110"]
    assert answers(slice(0, 2)) + answers(slice(2, 5)) == whole
    assert answers(slice(1, 2)) == []
