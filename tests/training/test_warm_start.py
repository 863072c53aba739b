"""The cache of warm starts gives back what was trained, or nothing."""

import logging

import jax
import numpy as np
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.data.tokenizers import CharTokenizer
from pods_jax.models import Decoder
from pods_jax.training.prompts import load_dataset
from pods_jax.training.run import scratch_config
from pods_jax.training.warm_start import fingerprint, warm_started_params


@pytest.fixture
def start(tiny, tmp_path, monkeypatch):
    """A function that makes the warm start of a config; it returns parameters, and the training calls it took."""
    monkeypatch.setenv("PODS_JAX_CACHE", str(tmp_path / "cache"))
    tiny.warm_start.num_steps = tiny.warm_start.batch_size = 2

    def made():
        config, _ = from_mapping(tiny)
        dataset = load_dataset(config)
        tokenizer = CharTokenizer(dataset.alphabet)
        losses = []
        model = Decoder(scratch_config(config, tokenizer))
        params = warm_started_params(config, model, dataset, tokenizer, lambda _, loss: losses.append(loss))
        return params, sum(loss is not None for loss in losses)

    return made


def files(tmp_path):
    return [path for path in (tmp_path / "cache" / "warm_starts").iterdir()]


def test_the_second_time_the_cache_answers(start, tmp_path):
    trained, calls = start()
    assert calls == 1
    again, calls = start()
    assert calls == 0
    jax.tree.map(np.testing.assert_array_equal, again, trained)
    assert len(files(tmp_path)) == 1


def cut(file):
    file.write_bytes(file.read_bytes()[:-3])


def empty(file):
    file.write_bytes(b"")


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def change_the_header(file):
    file.write_bytes(file.read_bytes().replace(b"embed", b"embeb", 1))


def swap_shapes(file):
    content = file.read_bytes()
    assert b"[1,16,32]" in content
    file.write_bytes(content.replace(b"[1,16,32]", b"[1,32,16]", 1))


def make_a_folder(file):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [cut, empty, flip_a_bit, change_the_header, swap_shapes])
def test_what_is_damaged_is_made_anew_and_replaced(start, tmp_path, damage, caplog):
    trained, _ = start()
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    damage(file)
    with caplog.at_level(logging.WARNING):
        again, calls = start()
    assert calls == 1
    assert [str(file) in record.getMessage() for record in caplog.records] == [True]
    jax.tree.map(np.testing.assert_array_equal, again, trained)
    assert file.read_bytes() == whole


@pytest.mark.parametrize("spoilt", ["file", "folder"])
def test_what_cannot_be_kept_is_one_note(start, tmp_path, spoilt, caplog):
    if spoilt == "folder":
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "warm_starts").touch()
    else:
        start()
        make_a_folder(files(tmp_path)[0])
    with caplog.at_level(logging.WARNING):
        _, calls = start()
    assert calls == 1
    assert "is not kept for the next run" in caplog.records[-1].getMessage()
    assert "\n" not in caplog.text.strip().splitlines()[-1]


def test_what_killed_runs_left_is_removed(start, tmp_path):
    start()
    left = tmp_path / "cache" / "warm_starts" / "tmpx1.partial"
    left.write_bytes(b"half")
    start()
    assert not left.exists()


# ---------------------------------------------------------------- one warm start for one


@pytest.mark.parametrize(
    ("section", "key", "value", "same"),
    [
        ("data", "options", {"base": 4, "digits": 2, "num_train": 24, "num_test": 8}, False),
        ("data", "name", "other", False),
        ("model", "hidden_size", 32, False),
        ("warm_start", "seed", 3, False),
        ("optimizer", "learning_rate", 1.0, True),
        ("training", "num_steps", 9, True),
    ],
)
def test_whatever_decides_the_result_is_in_the_fingerprint(tiny, section, key, value, same):
    config, _ = from_mapping(tiny)
    dataset = load_dataset(config)
    tiny[section][key] = value
    assert (fingerprint(from_mapping(tiny)[0], dataset) == fingerprint(config, dataset)) is same
