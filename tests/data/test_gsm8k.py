import json
import sys
import types

import pytest

from pods_jax.data.examples import DATASETS, Example
from pods_jax.data.gsm8k import load
from pods_jax.errors import UserError
from pods_jax.rewards import verify


def record(number: int, gold: str | None = None) -> dict:
    return {"question": f"How many is {number}? ", "answer": f"It is <<1+1=2>> that.\n#### {gold or number}"}


def write(path, records) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return str(path)


def test_a_folder_gives_both_splits_in_order(tmp_path):
    write(tmp_path / "train.jsonl", [record(1), record(2, "1,234"), record(3, "-0.5")])
    write(tmp_path / "test.jsonl", [record(4), record(5)])
    data = load(str(tmp_path), {}, seed=0)
    assert data.train == (
        Example("How many is 1?", "1"),
        Example("How many is 2?", "1234"),
        Example("How many is 3?", "-0.5"),
    )
    assert [example.gold for example in data.test] == ["4", "5"]
    assert data.task == "gsm8k"
    assert "####" in data.system
    assert load(str(tmp_path), {"num_test": 1}, seed=0).test == data.test[:1]
    assert DATASETS["gsm8k"] is load


def test_every_gold_verifies_itself(tmp_path):
    path = write(
        tmp_path / "all.jsonl", [record(i, gold) for i, gold in enumerate(["1", "1,000", "-3", ".5", "2.50", "7."])]
    )
    data = load(path, {"num_test": 2}, seed=0)
    for example in data.train + data.test:
        assert verify(f"#### {example.gold}", example.gold, data.task)


def test_the_end_of_a_single_file_is_the_test_split(tmp_path):
    path = write(tmp_path / "all.jsonl", [record(i) for i in range(1, 206)])
    data = load(path, {}, seed=0)
    assert [example.gold for example in data.train] == ["1", "2", "3", "4", "5"]
    assert len(data.test) == 200
    assert len(load(path, {"num_test": 5}, seed=0).train) == 200
    with pytest.raises(UserError, match="205 test problems of 205 leave none"):
        load(path, {"num_test": 205}, seed=0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ('{"question": "q"}', "expected an object with the texts"),
        ('{"question": "q", "answer": 5}', "expected an object with the texts"),
        ('{"question": "q", "answer": "5"}', "expected the answer to end in '#### '"),
        ('{"question": "q", "answer": "#### five"}', "found '#### five'"),
        ('{"question": "q", "answer": "#### "}', "expected the answer to end"),
    ],
)
def test_malformed_lines_are_named(tmp_path, line, message):
    path = tmp_path / "all.jsonl"
    path.write_text(json.dumps(record(1)) + "\n\n" + line + "\n")
    with pytest.raises(UserError, match=message) as raised:
        load(str(path), {"num_test": 1}, seed=0)
    assert str(raised.value).startswith(f"{path}:3: ")


def test_missing_empty_and_binary_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.jsonl: cannot be read"):
        load(str(tmp_path / "nowhere.jsonl"), {}, seed=0)
    write(tmp_path / "train.jsonl", [record(1)])
    with pytest.raises(UserError, match=r"test\.jsonl: cannot be read"):
        load(str(tmp_path), {}, seed=0)
    write(tmp_path / "test.jsonl", [])
    with pytest.raises(UserError, match=r"test\.jsonl: the file is empty"):
        load(str(tmp_path), {}, seed=0)
    (tmp_path / "test.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"test\.jsonl:1: not UTF-8"):
        load(str(tmp_path), {}, seed=0)


def test_bad_options_are_named(tmp_path):
    with pytest.raises(UserError, match="unknown option 'num_tests': did you mean 'num_test'"):
        load(str(tmp_path), {"num_tests": 5}, seed=0)
    with pytest.raises(UserError, match="num_test is 0"):
        load(str(tmp_path), {"num_test": 0}, seed=0)


def test_without_a_path_the_hub_is_asked(monkeypatch):
    hub = {"train": [record(1), record(2)], "test": [record(3)]}

    def load_dataset(name: str, config: str, split: str) -> list:
        assert (name, config) == ("openai/gsm8k", "main")
        return hub[split]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    data = load(None, {}, seed=0)
    assert [example.gold for example in data.train + data.test] == ["1", "2", "3"]


def test_no_network_is_a_user_error_that_says_what_to_do(monkeypatch):
    def load_dataset(name: str, config: str, split: str) -> list:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(UserError, match=r"no route.*set data\.path to a folder"):
        load(None, {}, seed=0)
