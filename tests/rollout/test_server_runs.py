"""Whole runs whose rollouts a server on the loopback samples: it has each step's weights, and may fail at any time."""

import dataclasses
import json
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from made_server import EOS, MadeServer, choice

from pods_jax.config.schema import Config, from_mapping, to_dict
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl
from pods_jax.models import load_pretrained
from pods_jax.rollout import generate
from pods_jax.training import Reporter, evaluate_checkpoint, train


class Sampled:
    """The choices of a server that samples with the weights that it loaded; without any they are all alike."""

    def __init__(self):
        self.policy = None

    def load(self, folder):
        self.policy = load_pretrained(folder)

    def __call__(self, server, body):
        if server.version < 0:
            return [choice(i, [EOS], [-9.0]) for i in range(body["n"])]
        with server.lock:
            model, params = self.policy
            key = jax.random.key(body["seed"] % 2**32)
            c = generate(
                model, params, [body["prompt"]], num_generations=body["n"], max_new_tokens=body["max_tokens"], key=key,
                temperature=body["temperature"], eos_ids=body["stop_token_ids"],
            )  # fmt: skip
        rows = zip(c.tokens[0], c.logprobs[0], c.lengths[0], strict=True)
        return [choice(i, t[:n].tolist(), p[:n].tolist()) for i, (t, p, n) in enumerate(rows)]


@pytest.fixture
def server():
    policy = Sampled()
    made = MadeServer(policy, policy.load)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def kept():
    """What one test leaves for the next."""
    return {}


@pytest.fixture
def config(tiny, server, tmp_path) -> Config:
    tiny.rollout.engine = "pods_jax.rollout.http_engine:HttpEngine"
    tiny.rollout.engine_options = {
        "url": server.url, "folder": str(tmp_path / "weights"), "seeded": True, "backoff_s": 0.05, "attempts": 6,
    }  # fmt: skip
    tiny.training.num_steps, tiny.training.eval_every_steps = 4, 0
    tiny.reward.parts = {"truncated": 1.0}  # which an untrained policy earns now and then
    tiny.optimizer.learning_rate = 3e-3
    tiny.objective.importance_sampling_cap = 2.0
    made, problems = from_mapping(tiny)
    assert not problems + violations(made)
    return made


def steps(workdir):
    """Metrics without what depends on the clock."""
    return [{k: v for k, v in m.items() if "time" not in k} for m in read_jsonl(workdir / "metrics.jsonl")]


def largest_difference(found):
    """The largest difference in log-probabilities between server and learner, in nats, over all steps that trained."""
    name = "sampling/sampling_logp_difference/max"
    return max(m[name] for m in found if m[name] is not None)


@pytest.fixture
def whole(kept, config, server, tmp_path):
    """The steps of a run without faults, which is trained once, and the number of its requests."""
    if not kept:
        train(config, tmp_path / "whole", Reporter(quiet=True))
        kept.update(steps=steps(tmp_path / "whole"), calls=len(server.requests))
    return kept


def test_a_run_trains_on_the_rollouts_of_a_server(config, server, tmp_path):
    train(config, tmp_path / "run", Reporter(quiet=True))
    found = steps(tmp_path / "run")
    assert [m["step"] for m in found] == [1, 2, 3, 4]
    assert largest_difference(found) < 1e-4  # the server has the step's weights
    assert all(m["staleness/max"] == 0 for m in found)
    assert sum(m["grad_norm"] > 1e-3 for m in found) >= 3  # so weights of another step would show
    assert server.version == 4
    versions = server.paths().count("/collective_rpc")
    assert versions == 5  # 0 to 4, each once, evaluations included
    assert json.loads((tmp_path / "weights" / "pods_jax_policy.json").read_text()) == {"version": 4}


def test_faults_change_nothing(whole, config, server, tmp_path):
    """With seeds, and a server that names its random numbers by them, the run is the same to the bit."""
    server.faults = [None, "drop", 500, None, "half", "restart", *[None] * 12, "restart", None, 503]
    train(config, tmp_path / "faulty", Reporter(quiet=True))
    assert not server.faults
    assert steps(tmp_path / "faulty") == whole["steps"]


def test_a_server_that_stays_away_is_one_line_and_the_run_goes_on_later(whole, config, server, tmp_path):
    server.faults = [*[None] * (whole["calls"] // 2), *["drop"] * 50]
    with pytest.raises(UserError, match=r"closed connection without response \(6 attempts\)"):
        train(config, tmp_path / "run", Reporter(quiet=True))
    assert 0 < len(steps(tmp_path / "run")) < 4
    server.faults = []
    train(config, tmp_path / "run", Reporter(quiet=True))
    assert steps(tmp_path / "run") == whole["steps"]


def test_the_engine_may_change_when_a_run_goes_on(config, server, tmp_path):
    """A checkpoint of a run with a server is evaluated without one."""
    config = dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, greedy=True))
    train(config, tmp_path / "run", Reporter(quiet=True))
    rollout = dataclasses.replace(config.rollout, engine="jit", engine_options=type(config.rollout.engine_options)())
    calls = len(server.requests)
    scores = evaluate_checkpoint(dataclasses.replace(config, rollout=rollout), tmp_path / "run", Reporter(quiet=True))
    assert np.isfinite(scores["accuracy"])
    assert len(server.requests) == calls
    assert scores["greedy_accuracy"] == read_jsonl(tmp_path / "run" / "eval.jsonl")[-1]["greedy_accuracy"]


def test_end_of_sequence_is_the_tokenizers(config, server, tmp_path):
    server.complete = lambda made, body: [choice(i, [EOS], [-0.5]) for i in range(body["n"])]
    train(config, tmp_path / "run", Reporter(quiet=True))
    assert {m["completions/mean_length"] for m in steps(tmp_path / "run")} == {1.0}


TWO = """
import json, sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train
train(from_mapping(json.loads(sys.argv[3]))[0], sys.argv[4], Reporter(quiet=True))
"""


@pytest.mark.slow
def test_of_two_processes_one_talks_to_the_server(config, server, tmp_path):
    """They train on the same rollouts as one process does; the weights are split over both."""
    two = dataclasses.replace(config, mesh=dataclasses.replace(config.mesh, data=1, fsdp=2))
    train(config, tmp_path / "one", Reporter(quiet=True))
    calls = len(server.requests)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    arguments = [json.dumps(to_dict(two)), str(tmp_path / "two")]
    commands = [[sys.executable, "-c", TWO, address, str(i), *arguments] for i in range(2)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    children = [subprocess.Popen(command, env=environment, **pipes) for command in commands]
    try:
        outputs = [child.communicate(timeout=300)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0], "\n".join(outputs)
    one, both = (steps(tmp_path / name) for name in ("one", "two"))
    for name in ("reward", "tokens/generated", "completions/mean_length"):
        assert [m[name] for m in both[:2]] == [m[name] for m in one[:2]]
    np.testing.assert_allclose([m["grad_norm"] for m in both], [m["grad_norm"] for m in one], rtol=1e-3)
    assert largest_difference(both) < 1e-4
    assert len(server.requests) == 2 * calls
