"""A run's folder: what is damaged is told or dropped, and a lock is given back."""

import contextlib
import json

import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl
from pods_jax.training.workdir import Workdir, refuse_other_config


def opened(tiny, path):
    return Workdir(path, from_mapping(tiny)[0])


def test_lines_after_the_checkpoint_are_dropped_damaged_or_not(tiny, tmp_path):
    folder = opened(tiny, tmp_path)
    for step in (1, 2, 3):
        folder.append("metrics.jsonl", {"step": step})
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 4, \xff\xfe\n{"step": 5}\n')
    folder.truncate("metrics.jsonl", 2)
    assert read_jsonl(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 2}]
    folder.truncate("metrics.jsonl", -1)
    assert read_jsonl(tmp_path / "metrics.jsonl") == []


def test_numbers_that_json_does_not_have_are_null(tiny, tmp_path):
    opened(tiny, tmp_path).append("metrics.jsonl", {"step": 1, "loss": float("nan"), "kl": float("inf")})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": null, "kl": null}\n'


@pytest.mark.parametrize("text", ["", '{"seed": ', "[]"])
def test_a_damaged_config_is_one_line(tiny, tmp_path, text):
    folder = opened(tiny, tmp_path)
    folder.append("metrics.jsonl", {"step": 1})
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config.json: not (JSON|a JSON object)"):
        refuse_other_config(tmp_path, from_mapping(tiny)[0])


def test_a_closed_workdir_is_free(tiny, tmp_path):
    folder = opened(tiny, tmp_path)
    with pytest.raises(UserError, match="in use by another run"):
        opened(tiny, tmp_path)
    folder.close()
    opened(tiny, tmp_path).close()


def test_the_config_is_written_only_when_it_changes(tiny, tmp_path):
    opened(tiny, tmp_path).close()
    before = (tmp_path / "config.json").stat().st_mtime_ns
    opened(tiny, tmp_path).close()
    assert (tmp_path / "config.json").stat().st_mtime_ns == before


def test_home_is_expanded_and_urls_are_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    opened(tiny, "~/run").close()
    assert (tmp_path / "run" / "config.json").is_file()
    with pytest.raises(UserError, match="workdir gs://bucket/run is a URL"):
        opened(tiny, "gs://bucket/run")


def test_a_run_of_an_earlier_version_goes_on(tiny, tmp_path):
    """Its config lacks a key that came later, and has its default here."""
    config = from_mapping(tiny)[0]
    folder = tmp_path / "run"
    with contextlib.closing(Workdir(folder, config)) as workdir:
        workdir.append("metrics.jsonl", {"step": 1})
    saved = json.loads((folder / "config.json").read_text())
    del saved["objective"]["entropy_coef"], saved["diagnostics"]
    (folder / "config.json").write_text(json.dumps(saved))
    refuse_other_config(folder, config)
    tiny.objective.entropy_coef = 0.5
    with pytest.raises(UserError, match=r"objective\.entropy_coef: 0\.0 there, 0\.5 here"):
        refuse_other_config(folder, from_mapping(tiny)[0])


def test_a_run_of_constant_rate_may_be_given_more_steps(tiny, tmp_path):
    tiny.optimizer.lr_scheduler_type = "constant"
    opened(tiny, tmp_path).append("metrics.jsonl", {"step": 1})
    tiny.training.num_steps += 5
    refuse_other_config(tmp_path, from_mapping(tiny)[0])
    tiny.training.num_steps -= 6
    with pytest.raises(UserError, match=r"training.num_steps: \d+ there, \d+ here"):
        refuse_other_config(tmp_path, from_mapping(tiny)[0])
    tiny.training.num_steps += 7
    tiny.optimizer.lr_scheduler_type = "cosine"
    with pytest.raises(UserError, match="lr_scheduler_type"):
        refuse_other_config(tmp_path, from_mapping(tiny)[0])
