"""Several processes, which talk only over the loopback: they train the demo as one does, stop together, and go on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pods_jax.config.load import load_config
from pods_jax.io import read_jsonl
from pods_jax.parallel.hosts import exchange, from_main, own_share
from pods_jax.training import Reporter, evaluate_checkpoint, train

ROOT = Path(__file__).parents[2]
DEMO = str(ROOT / "configs" / "demo.py")
OPTIONS = [
    "training.num_steps=4",
    "training.eval_every_steps=2",
    "training.checkpoint_every_steps=0",
    "training.log_samples_every_steps=1",
    "warm_start.num_steps=50",
    "evaluation.num_samples=0",  # greedy ones only
    "evaluation.num_prompts=33",  # not a multiple of the processes
    "reward.parts={'correctness': 1.0, 'truncated': 0.5}",  # so little warm start makes it wrong, but not always long
]
CONFIG = load_config(DEMO, OPTIONS)


@contextlib.contextmanager
def started(script, workdir, count):
    """So many processes of a command line on the demo; those that still run at the end are killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, str(ROOT / "experiments" / script), f"--config={DEMO}", f"--workdir={workdir}", "--json"]
    command += [*(f"--config.{option}" for option in OPTIONS), f"--coordinator={address}", f"--num-processes={count}"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    children = [subprocess.Popen([*command, f"--process-id={i}"], env=environment, **pipes) for i in range(count)]
    try:
        yield children
    finally:
        for child in children:
            child.kill()


def outputs_of(children):
    outputs = [child.communicate(timeout=500)[0] for child in children]
    assert [child.returncode for child in children] == [0] * len(children), "\n".join(outputs)
    assert not any("reward" in output or "data " in output for output in outputs[1:])
    return outputs


def ran(script, workdir, count):
    """The summary of processes that run to their end."""
    with started(script, workdir, count) as children:
        return json.loads(outputs_of(children)[0].splitlines()[-1])


def stopped_after(children, workdir, receivers):
    """SIGTERM, once there is a first line of metrics; the step after which the processes ended, with a checkpoint."""
    while not read_jsonl(workdir / "metrics.jsonl"):
        assert all(child.poll() is None for child in children), children[0].communicate()[0]
        time.sleep(0.02)
    for child in receivers:
        child.send_signal(signal.SIGTERM)
    outputs = outputs_of(children)
    step = len(read_jsonl(workdir / "metrics.jsonl"))
    assert f"stopped  by SIGTERM after step {step}, which is saved; the same command goes on" in outputs[0]
    assert (workdir / "checkpoints" / str(step)).is_dir()
    return step


def agree(one, many):
    """Two workdirs hold the same lines to rounding, timing aside."""
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        for a, b in zip(*(read_jsonl(folder / name) for folder in (one, many)), strict=True):
            assert a.keys() == b.keys()
            names = [k for k in a if "time" not in k]
            numbers = [k for k in names if isinstance(a[k], float)]
            np.testing.assert_allclose([b[k] for k in numbers], [a[k] for k in numbers], rtol=1e-3, atol=1e-5)
            assert {k: a[k] for k in names if k not in numbers} == {k: b[k] for k in names if k not in numbers}


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The workdir of one process."""
    workdir = tmp_path_factory.mktemp("one") / "run"
    train(CONFIG, workdir, Reporter(quiet=True))
    assert all(line["grad_norm"] > 1e-3 for line in read_jsonl(workdir / "metrics.jsonl"))
    return workdir


def test_two_processes_stop_together_and_one_goes_on(one, tmp_path):
    """The signal comes to only one, and not to the one that writes."""
    with started("train.py", tmp_path, 2) as children:
        assert stopped_after(children, tmp_path, children[1:]) < 4
    train(CONFIG, tmp_path, Reporter(quiet=True))
    agree(one, tmp_path)


@pytest.mark.slow
def test_one_process_stops_and_two_go_on_and_evaluate(one, tmp_path):
    train(load_config(DEMO, [*OPTIONS, "training.max_minutes=1e-9"]), tmp_path, Reporter(quiet=True))
    assert ran("train.py", tmp_path, 2)["steps"] == 4
    evals = read_jsonl(tmp_path / "eval.jsonl")
    assert [e["step"] for e in evals] == [0, 1, 2, 4]  # one process ended with one
    (tmp_path / "eval.jsonl").write_text("".join(json.dumps(e) + "\n" for e in evals if e["step"] != 1))
    agree(one, tmp_path)
    scores = ran("evaluate.py", tmp_path, 2)
    assert scores == pytest.approx(evaluate_checkpoint(CONFIG, tmp_path, Reporter(quiet=True)), abs=1e-6)


@pytest.mark.slow
def test_four_processes_stop_together_and_two_go_on(one, tmp_path):
    """The signal comes to all."""
    with started("train.py", tmp_path, 4) as children:
        assert stopped_after(children, tmp_path, children) < 4
    assert ran("train.py", tmp_path, 2)["steps"] == 4
    agree(one, tmp_path)


def test_a_process_alone_talks_to_nobody():
    assert exchange([1, "a"]) == [1, "a"]
    assert from_main({"b": 2}) == {"b": 2}
    assert own_share(7) == slice(0, 7)


@pytest.mark.parametrize("size", [0, 1, 7, 8])
def test_shares_cover_every_row_once(monkeypatch, size):
    monkeypatch.setattr("jax.process_count", lambda: 4)
    rows = []
    for index in range(4):
        monkeypatch.setattr("jax.process_index", lambda index=index: index)
        rows += range(size)[own_share(size)]
    assert rows == list(range(size))
