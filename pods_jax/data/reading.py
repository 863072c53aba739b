"""Rows of JSON Lines, CSV and Parquet files and of the Hugging Face hub, each with its place."""

import codecs
import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from pods_jax.fields import one_line, shown

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")


class BadRow(Exception):
    """A row that is no example; the message says why, without the place."""


class Row:
    """One row.

    Attributes:
      where: the row's place: "file:line", "file:row" or "repository split:row", counted from 1.
    """

    def __init__(self, where: str, content: bytes | Mapping[str, Any] | BadRow):
        self.where = where
        self._content = content

    def fields(self) -> Mapping[str, Any]:
        """The row as a mapping.

        Raises:
          BadRow: if it is not UTF-8, not JSON, not an object, or holds text that cannot be encoded.
        """
        if isinstance(self._content, BadRow):
            raise self._content
        fields = _decoded(self._content) if isinstance(self._content, bytes) else self._content
        if not isinstance(fields, Mapping):
            raise BadRow("expected an object")
        if strange := next(filter(None, map(_unencodable, _texts(fields))), None):
            raise BadRow(f"the text {strange} cannot be encoded: it holds half of a surrogate pair")
        return fields


def _texts(value: Any) -> Iterator[str]:
    """All texts in JSON's values, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in itertools.chain(value.keys(), value.values()):
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _unencodable(text: str) -> str | None:
    """The part of a text that cannot be encoded, for a message; None for a text that can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return ascii(text[max(0, error.start - 20) : error.start + 20])
    return None


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRow(f"not UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not JSON: {error}") from error


def file_rows(path: Path) -> Iterator[Row]:
    """The rows of a file; blank lines are skipped.

    Raises:
      UserError: for a file that cannot be read, or a suffix other than `SUFFIXES`.
    """
    if not path.exists():
        raise UserError(f"{path}: cannot be read: there is no such file or folder")
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}")
    readers = {".parquet": _parquet_rows, ".csv": _csv_rows}
    return readers.get(path.suffix, _json_rows)(path)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _json_rows(path: Path) -> Iterator[Row]:
    """A JSON file may also be one array, whose items count as its lines."""
    content = _content(path)
    if path.suffix == ".json" and content.lstrip().startswith(b"["):
        items = _array(path, content)
        yield from (Row(f"{path}:{number}", item) for number, item in enumerate(items, start=1))
        return
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield Row(f"{path}:{number}", line)


def _array(path: Path, content: bytes) -> list[Any]:
    try:
        return _decoded(content)
    except BadRow as error:
        raise UserError(f"{path}: {error}") from error


def _csv_rows(path: Path) -> Iterator[Row]:
    """The rows below the header, all fields as texts; a row's place is the line on which it ends."""
    reader = csv.reader(_csv_lines(path), strict=True)
    try:
        header = next(reader, [])
        if twice := next((name for name in header if header.count(name) > 1), None):
            raise UserError(f"{path}:1: the header has the column {shown(twice)} twice")
        for fields in filter(None, reader):
            yield Row(f"{path}:{reader.line_num}", _csv_record(header, fields))
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not CSV: {error}") from error


def _csv_lines(path: Path) -> Iterator[str]:
    for number, line in enumerate(_content(path).splitlines(keepends=True), start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}:{number}: not UTF-8: {error}") from error


def _csv_record(header: Sequence[str], fields: Sequence[str]) -> Mapping[str, str] | BadRow:
    if len(header) != len(fields):
        return BadRow(f"the row has {len(fields)} fields, and the header {len(header)}: {one_line(', '.join(header))}")
    return dict(zip(header, fields, strict=True))


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow.parquet  # comes with `datasets`; it takes half a second, which other files do not need

    try:
        records = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are kinds of ValueError
        raise UserError(f"{path}: cannot be read: {error}") from error
    for number, record in enumerate(records, start=1):
        yield Row(f"{path}:{number}", record)


def hub_rows(repository: str, configs: Sequence[str | None], split: str) -> Iterator[Row]:
    """The rows of a split, of one configuration after the other.

    Raises:
      UserError: without a network, or if the hub has no such data.
    """
    import datasets  # takes a second, which files do not need

    for config in configs:
        try:
            records = datasets.load_dataset(repository, config, split=split)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot load {repository} from the Hugging Face hub ({one_line(error)}); offline, set data.path to a "
                "folder with train.jsonl and test.jsonl, or to a file"
            ) from error
        place = " ".join(filter(None, (repository, config, split)))
        yield from (Row(f"{place}:{number}", record) for number, record in enumerate(records, start=1))
