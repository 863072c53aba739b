"""Commands on a policy: a checkpoint by its workdir's own config, or a model without a run."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from pods_jax import commands
from pods_jax.config.load import origin_of
from pods_jax.config.schema import from_mapping
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl
from pods_jax.training import Reporter, evaluate_checkpoint, train
from pods_jax.training.workdir import saved_config


@pytest.fixture(autouse=True)
def _own_programs(monkeypatch):
    monkeypatch.setenv("PODS_JAX_PROGRAMS", "0")


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs a command and returns its exit code, the JSON of its last line, and what it wrote to stderr."""

    def run(command, *arguments):
        monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        code = 0
        capsys.readouterr()
        try:
            command()
        except SystemExit as stopped:
            code = stopped.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def trained(tiny, tmp_path):
    tiny.training.num_steps = 2
    tiny.training.eval_every_steps = 0
    tiny.evaluation.num_prompts, tiny.evaluation.num_samples, tiny.evaluation.greedy = 8, 2, True
    config = from_mapping(tiny)[0]
    train(config, tmp_path / "run", Reporter(quiet=True))
    return config, tmp_path / "run"


def test_a_checkpoint_is_evaluated_by_its_workdirs_config(trained, call, tmp_path):
    config, workdir = trained
    assert saved_config(workdir) == config
    code, out, err = call(commands.evaluate, "--workdir", workdir, "--json", "--out", tmp_path / "p" / "all.jsonl")
    assert code == 0, err
    scores = json.loads(out.splitlines()[-1])
    last = read_jsonl(workdir / "eval.jsonl")[-1]
    assert scores == {name: last[name] for name in scores}
    rows = read_jsonl(tmp_path / "p" / "all.jsonl")
    for greedy, name, count in ((False, "accuracy", 16), (True, "greedy_accuracy", 8)):
        right = [row["correct"] for row in rows if row["greedy"] == greedy]
        assert len(right) == count
        assert np.mean(right) == pytest.approx(scores[name])
    assert all(row["correct"] == (row["completion"] == row["gold"]) for row in rows)
    assert {row["reason"] for row in rows} <= {"match", "mismatch", "no answer"}
    assert not call(commands.evaluate, "--workdir", workdir, "--config.evaluation.num_samples=4")[0]


def test_only_model_and_data_are_compared(trained):
    config, workdir = trained
    other = dataclasses.replace(
        config,
        seed=5,
        optimizer=dataclasses.replace(config.optimizer, max_grad_norm=0.0, learning_rate=1.0),
        rollout=dataclasses.replace(config.rollout, num_generations=4),
        selection=dataclasses.replace(config.selection, num_kept=2),
    )
    quiet = Reporter(quiet=True)
    assert evaluate_checkpoint(other, workdir, quiet) == evaluate_checkpoint(config, workdir, quiet)
    for section, key, value in (
        ("model", "hidden_size", 32),
        ("lora", "rank", 2),
        ("data", "prompt_template", "{question}="),
    ):
        changed = dataclasses.replace(getattr(config, section), **{key: value})
        with pytest.raises(UserError, match=rf"belongs to another config \({section}.{key}: "):
            evaluate_checkpoint(dataclasses.replace(config, **{section: changed}), workdir, quiet)


def test_a_policy_answers(trained, call):
    _, workdir = trained
    code, out, err = call(
        commands.sample, "--workdir", workdir, "--prompt", "0101=", "--prompt", "2222=", "--num-samples", 3, "--json"
    )
    assert code == 0, err
    first, second = map(json.loads, out.splitlines())
    assert (first["prompt"], second["prompt"]) == ("0101=", "2222=")
    assert all(set(answer) <= set("012=~") and len(answer) <= 4 for answer in first["answers"] + second["answers"])
    assert len(first["answers"]) == 3
    greedy = ("--workdir", workdir, "--prompt", "0101=", "--temperature", 0, "--num-samples", 2, "--json")
    answers = json.loads(call(commands.sample, *greedy)[1])["answers"]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("evaluate", [], r"which policy\? Give --workdir \(a run\) or --model"),
        ("evaluate", ["--workdir", "a", "--model", "b"], "not both"),
        ("evaluate", ["--workdir", "nowhere"], "nowhere holds no checkpoint: no run was made there"),
        ("evaluate", ["--model", "nowhere"], "--model is evaluated on a data set"),
        ("evaluate", ["--model", "nowhere", "--config.data.name=gsm8k"], "no model at 'nowhere'"),
        ("evaluate", ["--model", "x", "--config.data.name=gsm8k", "--out", "."], r"--out \. is a folder: name a file"),
        ("export", ["--out", "x"], r"which policy\? Give --workdir"),
        ("sample", ["--model", "nowhere", "--prompt", "x"], "no model at 'nowhere'"),
        ("sample", ["--model", "x", "--temperature", "-1"], "--temperature must be 0"),
        ("sample", ["--model", "x", "--num-samples", "0"], "--num-samples must be at least 1"),
        ("sample", ["--model", "x", "--seed", str(2**32)], "--seed must be below 4294967296, got 4294967296"),
    ],
)
def test_wrong_arguments_are_one_line(call, command, arguments, message):
    code, _, err = call(getattr(commands, command), *arguments)
    assert code == 2
    [line] = err.splitlines()
    with pytest.raises(UserError, match=message):
        raise UserError(line)


def test_an_origin_names_file_argument_and_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert origin_of("a/b.py:pods,n=3") == {"config": f"{tmp_path}/a/b.py:pods,n=3", "folder": str(tmp_path)}
    assert origin_of("b.py")["config"] == f"{tmp_path}/b.py"
