"""Two processes of four devices each, with weights split across both, do what one device does: they train, go on from a
checkpoint, evaluate and export. Run as a script, one of the two."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pods_jax.config.schema import default_config, from_mapping
from pods_jax.io import read_jsonl
from pods_jax.training import Reporter, evaluate_checkpoint, export_checkpoint, train

LAYOUTS = {
    "fsdp": {"data": 1, "fsdp": 8},
    "tensor": {"data": 1, "tensor": 8},
    "both": {"data": 1, "fsdp": 4, "tensor": 2},
    "sampled otherwise": {"data": 1, "fsdp": 8, "sampling": {"tensor": 8}},
    "lora": {"data": 1, "fsdp": 8, "sampling": {"data": 2, "tensor": 4}},
}
RANKS = {"lora": 2}
SLOW = ("fsdp", "tensor", "both", "sampled otherwise")


def config(mesh, rank, max_minutes=None):
    c = default_config()
    c.data.options = {"base": 3, "digits": 2, "num_train": 24, "num_test": 8}
    c.model.hidden_size, c.model.intermediate_size, c.model.num_hidden_layers = 32, 32, 2
    c.model.num_attention_heads, c.model.num_key_value_heads = 8, 8
    c.rollout.num_prompts, c.rollout.num_generations, c.selection.num_kept = 8, 8, 4
    c.rollout.max_prompt_length, c.rollout.max_completion_length = 5, 4
    c.reward.parts = {"truncated": 1.0}  # which an untrained policy earns now and then
    c.objective.beta = 0.1  # so that there is a reference
    c.optimizer.learning_rate, c.optimizer.adam_epsilon = 1e-3, 1e-2
    c.training.num_steps, c.training.max_minutes = 3, max_minutes
    c.evaluation.num_prompts, c.evaluation.num_samples, c.evaluation.greedy = 8, 8, False  # the program of a step
    c.lora.rank = rank
    c.mesh.update(mesh)
    built, problems = from_mapping(c)
    assert not problems
    return built


def lived(folder, mesh, rank):
    """A run that stops after its first step and goes on, evaluated and exported: the scores."""
    reporter = Reporter(quiet=True)
    train(config(mesh, rank, max_minutes=1e-9), folder / "run", reporter)
    summary = train(config(mesh, rank), folder / "run", reporter)
    assert summary["steps"] == 3
    export_checkpoint(config(mesh, rank), folder / "run", folder / "out", reporter)
    return evaluate_checkpoint(config(mesh, rank), folder / "run", reporter)


def whole(folder, rank):
    """A run on one device that never stops, exported: the scores at its end."""
    reporter = Reporter(quiet=True)
    summary = train(config({}, rank), folder / "run", reporter)
    export_checkpoint(config({}, rank), folder / "run", folder / "out", reporter)
    return summary["after"]


def two_processes(names, folder):
    """What each layout's evaluation said, as the two processes together saw it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "4",
        "JAX_PLATFORMS": "cpu",
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }
    commands = [[sys.executable, __file__, address, str(i), str(folder), *names] for i in range(2)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, env=environment, **pipes) for command in commands]
    try:
        outputs = [child.communicate(timeout=500) for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0], outputs
    scores = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
    assert scores[0] == scores[1]
    return scores[0]


def weights(folder):
    return {str(f.relative_to(folder)): load_file(f) for f in sorted(folder.rglob("*.safetensors"))}


def check(names, tmp_path):
    scores = two_processes(names, tmp_path)
    for rank in {RANKS.get(name, 0) for name in names}:
        one = tmp_path / f"one device, rank {rank}"
        expected = whole(one, rank)
        assert any(line["grad_norm"] > 1e-3 for line in read_jsonl(one / "run" / "metrics.jsonl"))
        for name in (name for name in names if RANKS.get(name, 0) == rank):
            assert scores[name] == pytest.approx(expected, abs=1e-6)
            agree(one, tmp_path / name)


def agree(one, two):
    """The same training step by step, to rounding, and the same exported weights."""
    keys = ("loss", "grad_norm", "reward/mean", "tokens/generated", "entropy")
    for a, b in zip(*(read_jsonl(folder / "run" / "metrics.jsonl") for folder in (one, two)), strict=True):
        np.testing.assert_allclose([b[k] for k in keys if k in a], [a[k] for k in keys if k in a], rtol=1e-3, atol=1e-5)
    expected, found = weights(one / "out"), weights(two / "out")
    assert expected.keys() == found.keys()
    for file, tensors in expected.items():
        assert tensors.keys() == found[file].keys()
        for name, value in tensors.items():
            np.testing.assert_allclose(found[file][name], value, atol=1e-5, err_msg=f"{file}: {name}")


def test_two_processes_that_hold_parts_of_every_weight(tmp_path):
    check([name for name in LAYOUTS if name not in SLOW], tmp_path)


@pytest.mark.slow
def test_two_processes_that_hold_parts_of_every_head(tmp_path):
    check(list(SLOW), tmp_path)


def main():
    from pods_jax.parallel import start

    address, index, folder, *names = sys.argv[1:]
    start.join(address, 2, int(index))
    scores = {name: lived(Path(folder) / name, LAYOUTS[name], RANKS.get(name, 0)) for name in names}
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
