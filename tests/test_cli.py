"""The command lines as a user meets them."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).parents[1]
SMALL = [
    "--config.warm_start.num_steps=0",
    "--config.training.num_steps=2",
    "--config.evaluation.num_prompts=8",
    "--config.rollout.num_generations=16",
    "--config.data.options.num_train=50",
    "--config.data.options.num_test=8",
    "--config.model.num_hidden_layers=1",
    "--config.evaluation.greedy=False",
]


def run(script, *arguments):
    command = [sys.executable, str(ROOT / "experiments" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_train_then_evaluate(tmp_path):
    arguments = ("--config", "configs/demo.py", "--workdir", str(tmp_path / "run"), *SMALL, "--json")
    done = run("train.py", *arguments)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["steps"] == 2
    assert summary["rollouts/generated"] == 2 * 16 * 16
    assert {"time/sample_s", "time/update_s", "time/compile_s", "wall_time_s"} <= summary.keys()
    evaluated = run("evaluate.py", *arguments)
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout.splitlines()[-1])["accuracy"] == summary["after"]["accuracy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "configs/nothing.py", "--workdir", "w"], "error: no config file configs/nothing.py"),
        (["--config", "configs/demo.py", "--workdir", "w", "--sed=1"], "error: unknown argument --sed=1"),
        (["--config", "configs/demo.py", "--workdir", "w", "--config.sed=1"], "unknown key sed (did you mean 'seed'?)"),
        (["--config", "configs/demo.py", "--workdir", "w", "--process-id=1"], "--num-processes and --process-id go"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, message):
    done = forked.run([ROOT / "experiments" / "train.py", *arguments])
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (ROOT / "w").exists()


CONFIG = ("--config", "configs/demo.py")


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("benchmark.py", ["selection", "--repeats", "0"], "--repeats must be at least 1, got 0"),
        ("benchmark.py", ["selection", "--kept", "9", "--generations", "8"], "--kept 9: there are 8 completions"),
        ("benchmark.py", ["gpu"], "no accelerator: JAX finds only a CPU"),
        ("plan.py", [*CONFIG, "--sweep", "m", "--values", "8", "0"], "--values must be at least 1, got 0"),
        ("sweep.py", [*CONFIG, "--workdir", "w", "--workers", "0", "--dry-run"], "0 worker(s)"),
        ("study.py", ["--quick", "--no-runs", "--workdir", "README.md"], "workdir README.md cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_code_2_for_every_script(script, arguments, message, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    done = forked.run([ROOT / "experiments" / script, *arguments])
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (ROOT / "w").exists()


def test_evaluate_needs_a_checkpoint(tmp_path):
    done = run("evaluate.py", "--config", "configs/demo.py", "--workdir", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"error: workdir {tmp_path} holds no checkpoint\n")


def test_a_reader_that_has_enough_ends_a_command_quietly():
    code = """
from pods_jax import cli
cli.main_with_errors(lambda: [cli.print_json({"line": i}) for i in range(100_000)])
"""
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert json.loads(process.stdout.readline()) == {"line": 0}
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 128 + signal.SIGPIPE
