import json
import sys
import types

import pyarrow
import pyarrow.parquet
import pytest

from pods_jax.data.reading import BadRow, file_rows, hub_rows
from pods_jax.errors import UserError

RECORDS = [{"a": 1, "b": "é\u2028"}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", "array.json"])
def test_every_format_gives_the_same_rows(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(RECORDS), path)
    elif suffix == "array.json":
        path.write_text(json.dumps(RECORDS, indent=1), encoding="utf-8")
    else:
        path.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in RECORDS) + "\n\n", encoding="utf-8")
    rows = list(file_rows(path))
    assert [row.fields() for row in rows] == RECORDS
    assert [row.where for row in rows] == [f"{path}:1", f"{path}:2"]


def test_blank_lines_count_as_lines(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('\n{"a": 1}\r\n\n{"a": 2}')
    assert [(row.where, row.fields()) for row in file_rows(path)] == [(f"{path}:2", {"a": 1}), (f"{path}:4", {"a": 2})]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'"text"', "expected an object"),
        (b"[1]", "expected an object"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"NaN x", "not JSON"),
        (rb'{"a": "x\ud800"}', r"the text 'x\\ud800' cannot be encoded"),
        (rb'{"a": [{"b": "\udfff"}]}', "cannot be encoded"),
        (rb'{"\ud800": 1}', "cannot be encoded"),
    ],
)
def test_a_bad_row_spoils_only_itself(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 2}\n')
    good, bad, last = file_rows(path)
    assert (good.fields(), last.fields()) == ({"a": 1}, {"a": 2})
    with pytest.raises(BadRow, match=message):
        bad.fields()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "array.json"])
def test_a_byte_order_mark_is_read(tmp_path, name):
    text = json.dumps(RECORDS) if name == "array.json" else "\n".join(map(json.dumps, RECORDS))
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert [row.fields() for row in file_rows(tmp_path / name)] == RECORDS


def test_whole_surrogate_pairs_are_text(tmp_path):
    (tmp_path / "rows.jsonl").write_text(r'{"a": "\ud83d\ude00"}')
    assert [row.fields() for row in file_rows(tmp_path / "rows.jsonl")] == [{"a": "😀"}]


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UserError, match=r"folder: cannot be read: there is no such file or folder"):
        list(file_rows(tmp_path / "folder"))
    (tmp_path / "rows.txt").write_text("a,b")
    with pytest.raises(UserError, match=r"rows\.txt: expected a file that ends in \.jsonl, \.json, \.csv"):
        list(file_rows(tmp_path / "rows.txt"))
    for name in ("rows.jsonl", "rows.parquet"):
        with pytest.raises(UserError, match=f"{name}: cannot be read"):
            list(file_rows(tmp_path / name))
    (tmp_path / "rows.parquet").write_text("not parquet")
    with pytest.raises(UserError, match=r"rows\.parquet: cannot be read"):
        list(file_rows(tmp_path / "rows.parquet"))
    (tmp_path / "rows.json").write_text("[1,")
    with pytest.raises(UserError, match=r"rows\.json: not JSON"):
        list(file_rows(tmp_path / "rows.json"))


def test_hub_configurations_follow_each_other(monkeypatch):
    def load_dataset(repository: str, config: str | None, split: str) -> list:
        return [{"config": config}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    rows = list(hub_rows("org/set", ("one", None), "test"))
    assert [(row.where, row.fields()) for row in rows] == [
        ("org/set one test:1", {"config": "one"}),
        ("org/set test:1", {"config": None}),
    ]


def test_csv_fields_are_texts_by_the_header(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes('\ufeffa,b\r\n1,"x, ""y""\nz"\r\n\r\n,é\r\n'.encode())
    assert [(row.where, row.fields()) for row in file_rows(path)] == [
        (f"{path}:3", {"a": "1", "b": 'x, "y"\nz'}),
        (f"{path}:5", {"a": "", "b": "é"}),
    ]


def test_csv_rows_of_another_width_are_bad_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n1,2,3\n4\n5,6\n")
    good, wide, narrow, last = file_rows(path)
    assert (good.fields(), last.fields()) == ({"a": "1", "b": "2"}, {"a": "5", "b": "6"})
    with pytest.raises(BadRow, match="the row has 3 fields, and the header 2: a, b"):
        wide.fields()
    with pytest.raises(BadRow, match="the row has 1 fields"):
        narrow.fields()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'a,b\n1,"x\n', r"rows\.csv:2: not CSV: unexpected end"),
        (b"a,b\n1,\xff\n", r"rows\.csv:2: not UTF-8"),
        (b"a,b,a\n1,2,3\n", r"rows\.csv:1: the header has the column 'a' twice"),
        (b'a\n"1"2\n', r"rows\.csv:2: not CSV"),
    ],
)
def test_csv_files_that_are_broken_are_named_by_line(tmp_path, content, message):
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(file_rows(tmp_path / "rows.csv"))


def test_an_empty_csv_file_has_no_rows(tmp_path):
    for content in ("", "a,b\n"):
        (tmp_path / "rows.csv").write_text(content)
        assert not list(file_rows(tmp_path / "rows.csv"))
