"""The checks before anything slow is loaded, and the lines of a dry run."""

import importlib.util

import pytest

from pods_jax.config import freeze
from pods_jax.config.schema import changes, to_dict
from pods_jax.data import Example
from pods_jax.errors import UserError
from pods_jax.training import Reporter, train
from pods_jax.training.preflight import check, describe, place


def test_a_good_config_passes_and_writes_nothing(tiny, tmp_path):
    check(freeze(tiny), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["mesh.tensor=64"], "mesh .* does not fit"),
        (["mesh.sampling={'tensor': 64}"], "mesh .* does not fit"),
        (["model.path=nowhere"], "no model at 'nowhere'"),
        (["lora.rank=2", "lora.path=nowhere"], r"lora\.path = 'nowhere': there is no such folder"),
        (["lora.rank=2", "lora.quantize_base=int8"], r"needs the package qwix: pip install -e '\.\[quantize\]'"),
    ],
    ids=str,
)
def test_what_would_fail_late_fails_before_the_data_is_read(tiny, tmp_path, monkeypatch, overrides, message):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    tiny.data.name = "gsm8k"
    tiny.data.path = str(tmp_path / "no_data")
    with pytest.raises(UserError, match=message):
        train(freeze(tiny, overrides), tmp_path / "run", Reporter(quiet=True))
    assert not (tmp_path / "run").exists()


def test_a_workdir_that_cannot_be_used_is_told_before_the_data_is_read(tiny, tmp_path):
    tiny.data.path = str(tmp_path / "no_data")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run cannot be written"):
        train(freeze(tiny), tmp_path / "file" / "run", Reporter(quiet=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eval_name": "math500", "eval_path": "none.jsonl"}, r"data\.eval_path = 'none\.jsonl', to evaluate on"),
        ({"name": "table", "path": "none.jsonl"}, r"data\.path = 'none\.jsonl': there is no such file"),
    ],
    ids=str,
)
def test_a_data_set_that_is_not_there_names_its_key(tiny, tmp_path, change, message):
    tiny.data.update(change)
    if "name" in change:
        tiny.data.options = {}
    with pytest.raises(UserError, match=message):
        train(freeze(tiny), tmp_path / "run", Reporter(quiet=True))


def test_a_dry_run_says_what_comes_from_where(tiny, tmp_path, capsys):
    tiny.evaluation.sets = {"others": {"name": "addition", "options": tiny.data.options.to_dict()}}
    tiny.reward.task = "exact"
    config = freeze(tiny)
    describe(config, "configs/mine.py:fast", tmp_path / "run", Reporter())
    out = capsys.readouterr().out
    for part in (
        "configs/mine.py:fast; what differs",
        "rollout.num_generations = 8",
        "model    from scratch",
        "prompts  training: 24 from a generator, 5 to 5 tokens",
        "prompts  others: 4 from a generator",
        f"workdir  {tmp_path / 'run'}",
    ):
        assert part in out
    assert not (tmp_path / "run").exists()
    assert place(Example("p", "g", where="a/rows.jsonl:3")) == "a/rows.jsonl"
    assert changes(to_dict(config))["rollout.num_generations"] == 8
    assert "seed" not in changes(to_dict(config))
