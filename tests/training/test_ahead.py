"""Generation ahead of training: rollouts of the policy before the last step, made meanwhile, and resumed exactly."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pods_jax.allocation import ALLOCATORS
from pods_jax.config.schema import RewardConfig, from_mapping
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.groups import Prompt, Request
from pods_jax.io import read_jsonl
from pods_jax.rewards import RewardPool
from pods_jax.rewards.callables import load_function
from pods_jax.rollout.engine import JitEngine
from pods_jax.rollout.sampler import no_completions
from pods_jax.training import Reporter, train
from pods_jax.training.background import Ahead, Round, pack_round, unpack_round
from pods_jax.training.checkpoint import pack, unpack
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run
from pods_jax.training.step import train_step

LOGS = ("metrics.jsonl", "eval.jsonl", "samples.jsonl")


@pytest.fixture
def ahead(tiny):
    tiny.rollout.ahead = 1
    tiny.training.num_steps = 6
    tiny.reward.parts = {"truncated": 1.0}  # which an untrained policy earns now and then
    tiny.optimizer.learning_rate = 3e-3
    tiny.objective.importance_sampling_cap = 2.0
    return tiny


def built(config):
    made, problems = from_mapping(config)
    assert not problems + violations(made)
    return made


def untimed(path):
    return [{k: v for k, v in r.items() if "time" not in k} for r in read_jsonl(path)]


def final_state(workdir, step):
    with ocp.StandardCheckpointer() as reader:
        return reader.restore((workdir / "checkpoints" / str(step) / "state").absolute())


def assert_same_run(one, other, step=6):
    for name in LOGS:
        assert untimed(one / name) == untimed(other / name), name
    jax.tree.map(np.testing.assert_array_equal, final_state(one, step), final_state(other, step))


# ---------------------------------------------------------------- the policy before the last step


class StaleEngine(JitEngine):
    """The sampler, in turn, with the policy before the one that it is given."""

    def update_params(self, version):
        super().update_params(version)
        self._params = jax.tree.map(jnp.copy, self._params)  # updates take the trained ones away
        self._given = {0: self._params} | getattr(self, "_given", {})
        self._given[version] = self._params
        self._params = self._given[max(version - 1, 0)]


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_it_trains_on_rollouts_of_the_policy_before_the_last_step(ahead, tmp_path, lora_rank):
    """As a run does in which generation and training take turns, with an engine that is a version behind."""
    ahead.lora.rank = lora_rank
    ahead.training.eval_every_steps = 0
    train(built(ahead), tmp_path / "ahead", Reporter(quiet=True))
    ahead.rollout.ahead = 0
    ahead.rollout.engine = "test_ahead:StaleEngine"
    train(built(ahead), tmp_path / "in_turn", Reporter(quiet=True))
    for name in ("metrics.jsonl", "samples.jsonl"):
        one, other = (untimed(tmp_path / run / name) for run in ("ahead", "in_turn"))
        assert [without_ages(line) for line in one] == [without_ages(line) for line in other]
    jax.tree.map(np.testing.assert_array_equal, *(final_state(tmp_path / run, 6) for run in ("ahead", "in_turn")))
    assert sum(line["grad_norm"] > 1e-3 for line in untimed(tmp_path / "ahead" / "metrics.jsonl")) >= 4


def without_ages(line):
    """What does not depend on the versions that rollouts say they are of."""
    return {k: v for k, v in line.items() if "staleness" not in k and "logp_difference" not in k}


def test_ages_are_logged(ahead, tmp_path):
    train(built(ahead), tmp_path / "run", Reporter(quiet=True))
    steps = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [m["staleness/max"] for m in steps] == [0, 1, 1, 1, 1, 1]
    assert [m["staleness/mean"] for m in steps] == [0, 1, 1, 1, 1, 1]
    assert steps[0]["sampling/sampling_logp_difference/max"] < 1e-4
    assert all(m["staleness/logp_difference_mean/1"] > 1e-4 for m in steps[1:])
    assert all(m["time/ahead_s"] > 0 for m in steps)


def test_no_rollouts_are_generated_that_no_step_needs(ahead, tmp_path):
    train(built(ahead), tmp_path / "run", Reporter(quiet=True))
    last = read_jsonl(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["rollouts/generated"] == 6 * 4 * 8
    assert last["rollouts/generated"] == last["rollouts/trained"] + last["rollouts/discarded"]


# ---------------------------------------------------------------- at the same time


class WatchedEngine(JitEngine):
    """Counts the generations that have begun."""

    begun = 0

    def generate(self, orders, sampling):
        WatchedEngine.begun += 1
        return super().generate(orders, sampling)


class Patient:
    """A reward function that does not return before the next step's generation has begun."""

    def __init__(self, num_steps):
        self.steps, self.calls = num_steps, 0

    def __call__(self, prompts, completions, **_):
        self.calls += 1
        end_s = time.perf_counter() + 60
        while WatchedEngine.begun < min(self.calls + 1, self.steps):
            assert time.perf_counter() < end_s, f"nothing is generated while step {self.calls} is verified"
            time.sleep(0.001)
        return [float(i % 2) for i in range(len(completions))]


def test_the_next_round_is_generated_during_verification(ahead, monkeypatch):
    """In turn, the first verification would never end."""
    ahead.rollout.engine = "test_ahead:WatchedEngine"
    ahead.reward.parts = {"patient": 1.0}
    ahead.reward.functions = {"patient": "test_ahead:patient"}
    monkeypatch.setattr(sys.modules[__name__], "patient", Patient(6), raising=False)
    monkeypatch.setattr(WatchedEngine, "begun", 0)
    config = built(ahead)
    data = load_data(dataclasses.replace(config, reward=RewardConfig()))
    load_function.cache_clear()
    with RewardPool(1) as pool:
        run = make_run(config, data, pool, lambda *_: None)
        for step in range(1, 7):
            train_step(run, step)
    assert WatchedEngine.begun == 6


# ---------------------------------------------------------------- stopping and going on


class Stops(Reporter):
    """Ends the run after some of its steps: by a signal, or by an error as a crash would."""

    def __init__(self, step, end):
        super().__init__(quiet=True)
        self._left, self._end = step, end

    def step(self, metrics):
        super().step(metrics)
        self._left -= 1
        if not self._left:
            self._end()


def signalled():
    os.kill(os.getpid(), signal.SIGTERM)


def crash():
    raise UserError("crash")


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_to_the_same_end(ahead, tmp_path, step):
    config = built(ahead)
    train(config, tmp_path / "whole", Reporter(quiet=True))
    assert train(config, tmp_path / "run", Stops(step, signalled))["stopped_by"] == "SIGTERM"
    assert len(read_jsonl(tmp_path / "run" / "metrics.jsonl")) == step
    train(config, tmp_path / "run", Reporter(quiet=True))
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_crash_between_two_checkpoints_changes_nothing(ahead, tmp_path):
    config = built(ahead)
    train(config, tmp_path / "whole", Reporter(quiet=True))
    for step in (3, 2):
        with pytest.raises(UserError, match="crash"):
            train(config, tmp_path / "run", Stops(step, crash))
    train(config, tmp_path / "run", Reporter(quiet=True))
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_an_error_of_the_next_generation_ends_the_run(ahead, tmp_path):
    ahead.rollout.engine = "test_ahead:FailingEngine"
    FailingEngine.left = 3
    ahead.training.eval_every_steps = 0
    ahead.evaluation.num_samples, ahead.evaluation.greedy = 0, True
    config = built(ahead)
    with pytest.raises(UserError, match="the server is gone"):
        train(config, tmp_path / "run", Reporter(quiet=True))
    assert len(read_jsonl(tmp_path / "run" / "metrics.jsonl")) == 2
    FailingEngine.left = 100
    train(config, tmp_path / "run", Reporter(quiet=True))
    train(config, tmp_path / "whole", Reporter(quiet=True))
    assert_same_run(tmp_path / "run", tmp_path / "whole")


class FailingEngine(JitEngine):
    """Fails after some generations, the first of which is the evaluation's."""

    left = 0

    def generate(self, orders, sampling):
        if not FailingEngine.left:
            raise UserError("the server is gone")
        FailingEngine.left -= 1
        return super().generate(orders, sampling)


# ---------------------------------------------------------------- what a checkpoint holds of it


@given(st.data())
def test_a_round_is_unpacked_as_it_was_packed(data):
    counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    T, pad = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 3))
    requests = [Request(Prompt(i, i, "q", "g", "", (1, 2), epoch=1), n, first=i) for i, n in enumerate(counts)]
    c = no_completions(counts, T, pad)
    for p, n in enumerate(counts):
        c.lengths[p, :n] = data.draw(arrays(np.int32, n, elements=st.integers(0, T)))
        c.truncated[p, :n] = data.draw(arrays(bool, n))
    own = np.arange(T) < c.lengths[..., None]
    if data.draw(st.booleans()):  # of several turns
        zeros = {"environment_rewards": np.float32, "last_turns": np.int32}
        c = c._replace(loss_mask=own, **{name: np.zeros(c.lengths.shape, dtype) for name, dtype in zeros.items()})
    c.tokens[own] = data.draw(arrays(np.int32, int(own.sum()), elements=st.integers(0, 99)))
    c.logprobs[own] = data.draw(arrays(np.float32, int(own.sum()), elements=st.floats(-50, 0, width=32)))
    plain, packed = pack(pack_round(Round(requests, c, 5, seconds=2.0)))
    found = unpack_round(unpack(json.loads(json.dumps(plain)), packed), pad)
    assert found.requests == requests
    assert (found.version, found.seconds) == (5, 0.0)
    jax.tree.map(np.testing.assert_array_equal, found.completions, c)
    assert [x is None or x.dtype for x in found.completions] == [x is None or x.dtype for x in c]


def test_nothing_ahead_is_an_empty_state():
    ahead = Ahead()
    assert ahead.take() is None
    assert ahead.state_dict() == {}
    ahead.load_state_dict({}, 0)
    ahead.wait()
    assert ahead.take() is None


# ---------------------------------------------------------------- who may be asked ahead


def test_allocators_that_ask_by_the_last_rewards_are_refused_by_name(ahead):
    allowed = set()
    for name in ALLOCATORS:
        ahead.allocation.name = name
        refused = [p for p in violations(from_mapping(ahead)[0]) if "rollout.ahead" in p]
        if refused:
            assert refused == [
                f"rollout.ahead = 1 does not go with allocation.name = '{name}', which asks by rewards of the step "
                "before (works with: uniform)"
            ]  # fmt: skip
        else:
            allowed.add(name)
    assert allowed == {"uniform"}


@pytest.mark.parametrize("value", [-1, 2])
def test_one_step_ahead_is_the_most(ahead, value):
    ahead.rollout.ahead = value
    assert f"rollout.ahead must be 0 or 1, got {value}" in violations(from_mapping(ahead)[0])


# ---------------------------------------------------------------- devices of its own


RUN = """
import json, sys
from pods_jax.config.schema import RewardConfig, from_mapping
from pods_jax.training import Reporter, train
train(from_mapping(json.loads(sys.argv[1]))[0], sys.argv[2], Reporter(quiet=True))
"""


def on_four_devices(config, workdir):
    command = [sys.executable, "-c", RUN, json.dumps(config.to_dict()), str(workdir)]
    done = subprocess.run(command, env=os.environ | {"JAX_NUM_CPU_DEVICES": "4"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_devices_that_only_sample_generate_the_same(ahead, tmp_path):
    """The rollouts of the first three steps, which no rounding reaches, are those of a run on one device."""
    ahead.training.num_steps = 3
    train(built(ahead), tmp_path / "one", Reporter(quiet=True))
    ahead.mesh.sampling = {"devices": 2, "tensor": 1}
    ahead.mesh.fsdp, ahead.mesh.data = 2, 1
    on_four_devices(ahead, tmp_path / "apart")
    one, apart = (untimed(tmp_path / run / "metrics.jsonl") for run in ("one", "apart"))
    for name in ("reward", "completions/mean_length", "staleness/max", "rollouts/generated"):
        assert [m[name] for m in apart] == [m[name] for m in one]
    np.testing.assert_allclose([m["grad_norm"] for m in apart], [m["grad_norm"] for m in one], rtol=1e-4)


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"devices": 0.5}, "mesh.sampling.devices must be a number of devices, got 0.5"),
        ({"devices": -1}, "mesh.sampling.devices must be a number of devices, got -1"),
    ],
)
def test_devices_that_are_no_number_are_refused(tiny, sampling, message):
    tiny.mesh.sampling = sampling
    assert message in violations(from_mapping(tiny)[0])


def test_training_needs_a_device(tiny, tmp_path):
    tiny.mesh.sampling = {"devices": 1}
    with pytest.raises(UserError, match=r"mesh.sampling.devices = 1 of 1 device\(s\) leave none for training"):
        train(from_mapping(tiny)[0], tmp_path / "run", Reporter(quiet=True))
    assert Path(tmp_path / "run").exists() is False or not read_jsonl(tmp_path / "run" / "metrics.jsonl")
