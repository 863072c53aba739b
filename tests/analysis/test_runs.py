"""Folders that are workdirs; logs that a kill tore are read, and damaged ones are named."""

import pytest
from made_runs import make_run

from pods_jax.analysis.runs import find_runs, read_run
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl


def test_a_line_torn_by_a_kill_is_left_out(tmp_path):
    (tmp_path / "eval.jsonl").write_text('{"step": 0}\n{"step": 4}\n{"ste')
    assert read_jsonl(tmp_path / "eval.jsonl") == [{"step": 0}, {"step": 4}]
    assert read_jsonl(tmp_path / "metrics.jsonl") == []


@pytest.mark.parametrize("line", [b'{"step": ', b"", b"\0\0\0", b"\xff", b"[1]"])
def test_a_bad_line_in_the_middle_is_named(tmp_path, line):
    (tmp_path / "eval.jsonl").write_bytes(b'{"step": 0}\n' + line + b'\n{"step": 8}\n')
    with pytest.raises(UserError, match=r"eval\.jsonl, line 2: not") as error:
        read_jsonl(tmp_path / "eval.jsonl")
    assert "\n" not in str(error.value)


def test_a_damaged_config_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"data": {\n"name"')
    with pytest.raises(UserError, match=r"config\.json: not JSON: .*line 2"):
        read_run(tmp_path)


def test_runs_without_steps_evaluations_or_config_are_named(tmp_path):
    a, b, c, d = (make_run(tmp_path / k, n=8, m=4, rule="all", seed=0, rate=1.0) for k in "abcd")
    (b / "metrics.jsonl").write_text("")
    (c / "config.json").unlink()
    for log in ("metrics.jsonl", "eval.jsonl"):
        (d / log).unlink()
    runs, left_out = find_runs(tmp_path)
    assert [run.workdir for run in runs] == [a]
    assert left_out == [
        f"{b} is left out: it has no step",
        f"{c} is left out: it has no config.json of a run",
        f"{d} is left out: it has no step and no evaluation",
    ]


def test_a_models_config_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert find_runs(tmp_path) == ([], [])
