"""Weights & Biases, offline: what its file holds, that a run goes on in it, and that trouble costs the board only."""

import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.training import Reporter, train
from pods_jax.training.wandb_board import WandbBoard


@pytest.fixture
def offline(tiny, monkeypatch):
    pytest.importorskip("wandb", reason="the extra 'wandb' brings it")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tiny.logging.wandb = "a project"
    tiny.training.num_steps = 2
    return tiny


def test_a_run_is_in_the_file_and_goes_on_under_the_same_name(offline, tmp_path):
    train(from_mapping(offline)[0], tmp_path / "run", Reporter())
    name = (tmp_path / "run" / "wandb_run_id").read_text()
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    for part in ("selection/kept_variance", "eval/accuracy", "max_completion_length", "a project", name):
        assert part.encode() in content
    assert b"rollouts kept" in b"".join(f.read_bytes() for f in file.parent.rglob("*.html"))
    offline.logging.wandb = "another project"
    train(from_mapping(offline)[0], tmp_path / "run", Reporter())
    assert (tmp_path / "run" / "wandb_run_id").read_text() == name


def test_trouble_is_one_note(offline, tmp_path, monkeypatch):
    notes = []
    board = WandbBoard("a project", from_mapping(offline)[0], tmp_path, notes.append)

    def broken(values):
        raise RuntimeError("the service\ndied")

    run = board._run
    monkeypatch.setattr(run, "log", broken)
    for step in (1, 2):
        board.add({"reward": 0.5}, step)
    board.close()
    run.finish()
    assert notes == ["note     no more Weights & Biases: the service died"]


def test_who_cannot_log_in_is_told(offline, tmp_path, monkeypatch):
    import wandb

    def refused(**_):
        raise wandb.errors.UsageError("api_key not configured (no-tty)")

    monkeypatch.setattr(wandb, "init", refused)
    with pytest.raises(UserError, match=r"logging.wandb = 'p': api_key not configured .*WANDB_MODE=offline"):
        WandbBoard("p", from_mapping(offline)[0], tmp_path, print)


def test_a_missing_package_is_told_before_anything_starts(tiny, tmp_path, monkeypatch):
    tiny.logging.wandb = "a project"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"logging.wandb = 'a project' needs its extra: pip install 'pods_jax\[wandb\]'"
    ):
        train(from_mapping(tiny)[0], tmp_path / "run", Reporter())
    assert not (tmp_path / "run").exists()


def test_a_project_has_a_name(tiny):
    tiny.logging.wandb = ""
    assert violations(from_mapping(tiny)[0]) == ["logging.wandb must name a project or be None"]
