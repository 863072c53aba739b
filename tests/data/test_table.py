"""Data set "table": every form of file, columns by name, and what is wrong in one line with file and row."""

import csv
import json
import sys
import types

import pyarrow
import pyarrow.parquet
import pytest

from pods_jax.data import DATASETS, columns_of
from pods_jax.errors import UserError

OPTIONS = {"prompt": "question", "answer": "result", "kind": "topic", "task": "math"}
ROWS = [
    {"question": f"What is {i} + 1?", "result": str(i + 1), "topic": ["even", "odd"][i % 2], "level": str(i)}
    for i in range(40)
]


def load(path, **options):
    return DATASETS["table"](str(path), OPTIONS | options, 0)


def write(path, rows=ROWS):
    """The rows as a file of the kind that its suffix says."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def offer_on_hub(monkeypatch, rows):
    """Puts the rows of each split, {split: rows}, on a hub that records what it is asked for."""
    asked = []

    def load_dataset(repository, config, split):
        asked.append((repository, config, split))
        return rows[split]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    return asked


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_form_of_file_gives_the_same_examples(tmp_path, suffix):
    data = load(write(tmp_path / f"rows{suffix}"))
    found = {e.prompt: e for e in data.train + data.test}
    assert (len(data.train), len(data.test), data.task, data.system) == (36, 4, "math", None)
    assert found.keys() == {row["question"] for row in ROWS}
    for row in ROWS:
        example = found[row["question"]]
        assert (example.gold, example.kind, example.columns) == (row["result"], row["topic"], row)


def test_the_test_part_depends_on_the_seed_only(tmp_path):
    path = str(write(tmp_path / "rows.jsonl"))
    first, again, other = (DATASETS["table"](path, OPTIONS, seed) for seed in (0, 0, 1))
    assert first.test == again.test != other.test
    assert not {e.prompt for e in first.test} & {e.prompt for e in first.train}
    assert first.test != tuple(e for e in first.train + first.test if e.prompt in {r["question"] for r in ROWS[-4:]})
    assert len(load(path, num_test=7).test) == 7


def test_folders_and_test_files(tmp_path):
    write(tmp_path / "train.jsonl", ROWS[:30])
    assert (len(load(tmp_path).train), len(load(tmp_path).test)) == (27, 3)
    write(tmp_path / "test.csv", ROWS[30:])
    assert (len(load(tmp_path).train), len(load(tmp_path).test)) == (30, 10)
    data = load(tmp_path / "train.jsonl", test_path=str(tmp_path / "test.csv"))
    assert (len(data.train), [e.prompt for e in data.test]) == (30, [row["question"] for row in ROWS[30:]])


def test_hub_splits(monkeypatch):
    asked = offer_on_hub(monkeypatch, {"all": ROWS, "held": ROWS[:3]})
    assert len(load("me/sums", split="all", config="easy").test) == 4
    data = load("me/sums", split="all", test_split="held")
    assert (len(data.train), len(data.test)) == (40, 3)
    assert asked == [("me/sums", "easy", "all"), ("me/sums", None, "all"), ("me/sums", None, "held")]


def test_prompts_of_messages(tmp_path):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    rows = [{"chat": turns, "answer": 4, "weight": i} for i in range(3)]
    for suffix in (".jsonl", ".parquet"):
        data = DATASETS["table"](str(write(tmp_path / f"rows{suffix}", rows)), {"prompt": "chat", "task": "math"}, 0)
        assert {(e.prompt, e.gold, e.earlier[0]["content"]) for e in data.train} == {("2 + 2?", "4", "Be brief.")}
        assert sorted(columns_of(data.train + data.test)["weight"]) == [0, 1, 2]


GOLDS = [(3, "3"), (3.0, "3"), (0.5, "0.5"), (" x ", "x"), (10**30, "1" + "0" * 30), (10**400, "1" + "0" * 400)]


@pytest.mark.parametrize(("value", "gold"), GOLDS)
def test_golds_are_texts_or_numbers(tmp_path, value, gold):
    rows = [{"prompt": "p", "answer": value}] * 2
    assert DATASETS["table"](str(write(tmp_path / "rows.jsonl", rows)), {"task": "math"}, 0).train[0].gold == gold


def test_no_golds_where_a_function_needs_none(tmp_path):
    path = str(write(tmp_path / "rows.jsonl", [{"prompt": "p"}] * 2))
    assert DATASETS["table"](path, {"answer": None, "task": "mine:score"}, 0).train[0].gold == ""
    with pytest.raises(UserError, match="task 'math' compares with golds: option 'answer' must name a column"):
        DATASETS["table"](path, {"answer": None, "task": "math"}, 0)


BAD_ROWS = [
    ({"question": "p"}, r"no column 'result' \(there are: question\)"),
    ({"result": "1", "topic": "t"}, r"no column 'question' \(there are: result, topic\)"),
    ({"question": "p", "result": "1"}, r"no column 'topic'"),
    ({"question": "", "result": "1", "topic": "t"}, "column 'question' is empty"),
    ({"question": 5, "result": "1", "topic": "t"}, "column 'question' must be a text or a list of messages, found 5"),
    ({"question": [], "result": "1", "topic": "t"}, r"column 'question' must be a text or .*, found \[\]"),
    ({"question": [{"role": "user"}], "result": "1", "topic": "t"}, "'question': a message needs a role and a content"),
    ({"question": [{"role": "tool", "content": ""}], "result": "1", "topic": "t"}, "the last message is of 'tool'"),
    ({"question": "p", "result": " ", "topic": "t"}, "column 'result' is empty"),
    ({"question": "p", "result": None, "topic": "t"}, "column 'result' must be a text or a number, found None"),
    ({"question": "p", "result": True, "topic": "t"}, "column 'result' must be a text or a number, found True"),
    ({"question": "p", "result": float("nan"), "topic": "t"}, "column 'result' must be a text or a number, found nan"),
    ({"question": "p", "result": ["1"], "topic": "t"}, r"column 'result' must be a text or a number, found \['1'\]"),
    ({"question": "p", "result": "1", "topic": {}}, r"column 'topic' must be a text, found \{\}"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_rows_are_named_by_file_and_line(tmp_path, row, message):
    path = write(tmp_path / "rows.jsonl", [*ROWS[:2], row, *ROWS[2:]])
    with pytest.raises(UserError, match=message) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}:3: ")
    assert "\n" not in str(raised.value)
    assert load(path, on_bad="skip").skipped == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"promt": "question"}, "unknown option 'promt': did you mean 'prompt'"),
        ({"prompt": 3}, "prompt = 3 must be a text"),
        ({"prompt": None}, "'prompt' and 'split' must be texts"),
        ({"num_test": 0}, "num_test is 0"),
        ({"split": "train"}, r"option 'split' is for data sets of the hub, and .*rows\.jsonl is a file"),
        ({"test_path": "nowhere.jsonl"}, r"nowhere\.jsonl: cannot be read"),
        ({"num_test": 40}, "40 test problems of 40 leave none for training"),
        ({"prompt": "problem", "on_bad": "skip"}, "no row is usable: .*no column 'problem'"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_named(tmp_path, options, message):
    path = write(tmp_path / "rows.jsonl")
    with pytest.raises(UserError, match=message):
        load(path, **options)


def test_paths_with_nothing_there_are_named(tmp_path):
    for path in (tmp_path / "no.jsonl", "data/no.csv", "nothing"):
        with pytest.raises(UserError, match="there is no such file or folder, and it is no hub id"):
            load(path)
    with pytest.raises(UserError, match=r"set data\.path to a file"):
        DATASETS["table"](None, OPTIONS, 0)
    with pytest.raises(UserError, match="the folder has no file that ends in"):
        load(tmp_path)
    for name in ("empty.jsonl", "empty.csv"):
        (tmp_path / name).write_text("")
        with pytest.raises(UserError, match=f"{name}: the file is empty"):
            load(tmp_path / name)
