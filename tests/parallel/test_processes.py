"""Two and four processes, which talk over the loopback alone, train as one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pods_jax.analysis.runs import read_jsonl
from pods_jax.parallel.hosts import exchange, from_main, own_share

TRAIN = Path(__file__).parents[2] / "experiments" / "train.py"
CONFIG = """
import json
from ml_collections import ConfigDict

def get_config():
    return ConfigDict(json.loads({}))
"""


def trained(config, folder, num_processes):
    """The output of each process of a run in `folder/run`."""
    (folder / "config.py").write_text(CONFIG.format(repr(json.dumps(config.to_dict()))))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, str(TRAIN), f"--config={folder / 'config.py'}", f"--workdir={folder / 'run'}", "--json"]
    if num_processes > 1:
        command += [f"--coordinator={address}", f"--num-processes={num_processes}"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    children = [
        subprocess.Popen(
            command + ([f"--process-id={i}"] if num_processes > 1 else []),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(num_processes)
    ]
    outputs = [child.communicate(timeout=500)[0] for child in children]
    assert [child.returncode for child in children] == [0] * num_processes, "\n".join(outputs)
    return outputs


def untimed(path):
    return [{k: v for k, v in r.items() if "time" not in k} for r in read_jsonl(path)]


@pytest.fixture
def small(tiny):
    tiny.training.num_steps, tiny.training.eval_every_steps, tiny.training.checkpoint_every_steps = 2, 1, 1
    tiny.evaluation.num_prompts = 6  # not a multiple of the processes
    return tiny


@pytest.mark.parametrize("num_processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_train_as_one_does(small, tmp_path, num_processes):
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    trained(small, tmp_path / "one", 1)
    outputs = trained(small, tmp_path / "many", num_processes)
    assert json.loads(outputs[0].splitlines()[-1])["steps"] == 2
    assert not any("reward" in output or "data " in output for output in outputs[1:])
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        one, many = (untimed(tmp_path / folder / "run" / name) for folder in ("one", "many"))
        assert len(one) == len(many)
        for a, b in zip(one, many, strict=True):
            assert a.keys() == b.keys()
            numbers = [k for k, v in a.items() if isinstance(v, float)]
            np.testing.assert_allclose([b[k] for k in numbers], [a[k] for k in numbers], rtol=1e-4, atol=1e-5)
            assert {k: v for k, v in a.items() if k not in numbers} == {k: b[k] for k in a if k not in numbers}


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
