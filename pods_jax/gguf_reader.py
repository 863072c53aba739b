"""Reading GGUF files: a model's metadata and tensors, for its weights and its tokenizer.

Every length that a file states is compared with the file's end before it is used. So a damaged or hostile file is an
error, found in the time that its header takes to read. The format's numbers are those of the `gguf` package.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pods_jax.errors import UserError
from pods_jax.fields import REQUIRED, Rule, field, one_line, shown, whole

MAGIC = b"GGUF"
VERSIONS = (2, 3)
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The types of metadata that are one number, with their codes in `struct` and NumPy."""
STRING = 8
ARRAY = 9
MOST_DIMENSIONS = 4
PIECE = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
COUNT = whole(0)


class Tensor(NamedTuple):
    """A tensor of a file.

    Attributes:
      shape: shape of its numbers, with the slowest axis first.
      kind: member of `gguf.GGMLQuantizationType`.
      data: its bytes [..., bytes of a row], mapped from the file.
    """

    shape: tuple[int, ...]
    kind: Any
    data: np.ndarray


class GGUFFile:
    """A GGUF file, or all pieces of a split one: its metadata by key, and its tensors by name.

    Raises:
      UserError: the file is not GGUF or is damaged, is a later piece, a piece is missing, or `file[key]` asks for a key
        that is missing.
    """

    def __init__(self, path: Path):
        self.path = path
        first = _Header(path)
        self._values = first.values
        self.tensors = first.tensors()
        for piece in self._other_pieces():
            more = _Header(piece).tensors()
            if twice := more.keys() & self.tensors.keys():
                raise UserError(f"{piece}: tensor {shown(min(twice))} is in another piece too")
            self.tensors |= more
        stated = self.field("split.tensors.count", COUNT, len(self.tensors))
        if stated != len(self.tensors):
            raise UserError(f"{path}: the pieces hold {len(self.tensors)} tensors, split.tensors.count says {stated}")

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            raise UserError(f"{self.path}: no metadata '{key}'")
        return _decoded(self._values[key], f"{self.path}: metadata '{key}'")

    def field(self, key: str, rule: Rule, default: Any = REQUIRED) -> Any:
        """The value of `key` in the metadata, or `default` if it is absent. UserError if it does not fit the rule."""
        if key not in self and default is not REQUIRED:
            return default
        return field({key: self[key]}, key, rule, self.path)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def _other_pieces(self) -> list[Path]:
        """The other files of a model that llama.cpp's gguf-split has split; this first one holds the metadata."""
        count = self.field("split.count", whole(0, 99_999), 1)
        if count < 2:
            return []
        name = PIECE.fullmatch(self.path.name)
        if name is None or int(name["count"]) != count:
            raise UserError(f"{self.path}: one of {count} pieces, but its name does not end in -00001-of-{count:05d}")
        if int(name["number"]) != 1 or self.field("split.no", COUNT, 0) != 0:
            raise UserError(f"{self.path}: a later piece of a split model: name the first, {name['stem']}-00001-of-...")
        return [self.path.with_name(f"{name['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(2, count + 1)]


def _decoded(value: Any, place: str) -> Any:
    """The texts of a value that a header keeps as bytes; other values as they are."""
    try:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, list):
            return [item.decode() for item in value]
    except UnicodeDecodeError as error:
        raise UserError(f"{place} cannot be read: {one_line(error)}") from error
    return value.tolist() if isinstance(value, np.ndarray) else value


# ---------------------------------------------------------------- a header


class _Damaged(ValueError):
    """The file violates the format; the message says how, without the path."""


class _Header:
    """The beginning of one file.

    Attributes:
      values: the metadata, with texts as bytes, and arrays as lists of bytes or NumPy arrays.
    """

    def __init__(self, path: Path):
        self._path = path
        try:
            self._data = np.memmap(path, np.uint8, "r")
            self._at = 0
            num_tensors, num_values = self._counts()
            self.values = self._read_values(num_values)
            self._infos = self._read_infos(num_tensors)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # also NumPy's error for an empty file
            raise UserError(f"{path}: not a readable GGUF file: {one_line(error)}") from error

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        try:
            start = -self._at % self._alignment() + self._at
            return {name: self._tensor(start, *info) for name, info in self._infos.items()}
        except (ValueError, KeyError) as error:
            raise UserError(f"{self._path}: not a readable GGUF file: {one_line(error)}") from error

    def _counts(self) -> tuple[int, int]:
        if self._take(4).tobytes() != MAGIC:
            raise _Damaged("it does not begin with GGUF")
        if (version := self._number("I")) not in VERSIONS:
            raise _Damaged(f"version {version} is not supported")
        num_tensors = self._number("Q")
        return num_tensors, self._number("Q")

    def _take(self, size: int) -> np.ndarray:
        """The next bytes."""
        if size > len(self._data) - self._at:
            raise _Damaged(f"it ends before {size} bytes that it states")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _text(self) -> bytes:
        return self._take(self._number("Q")).tobytes()

    def _read_values(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for _ in range(count):
            key = self._text().decode()
            if key in values:
                raise _Damaged(f"it has {shown(key)} twice")
            values[key] = self._value(self._number("I"))
        return values

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._text()
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if kind != ARRAY:
            raise _Damaged(f"type {kind} of metadata is not supported")
        kind = self._number("I")
        count = self._number("Q")
        if kind == STRING:
            return [self._text() for _ in range(count)]
        if kind not in NUMBERS:
            raise _Damaged(f"arrays of type {kind} are not supported")
        dtype = np.dtype(NUMBERS[kind]).newbyteorder("<")
        return self._take(count * dtype.itemsize).view(dtype)

    def _read_infos(self, count: int) -> dict[str, tuple[tuple[int, ...], int, int]]:
        """Shape, type and offset of each tensor."""
        infos: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(count):
            name = self._text().decode()
            if name in infos:
                raise _Damaged(f"it has tensor {shown(name)} twice")
            if (dimensions := self._number("I")) > MOST_DIMENSIONS:
                raise _Damaged(f"tensor {shown(name)} has {dimensions} dimensions")
            shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
            kind = self._number("I")
            infos[name] = shape, kind, self._number("Q")
        return infos

    def _alignment(self) -> int:
        alignment = self.values.get("general.alignment", 32)
        if type(alignment) is not int or alignment not in (2**i for i in range(20)):
            raise _Damaged(f"general.alignment = {shown(alignment)}")
        return alignment

    def _tensor(self, start: int, shape: tuple[int, ...], number: int, offset: int) -> Tensor:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        kind = GGMLQuantizationType(number)
        block, block_bytes = GGML_QUANT_SIZES[kind]
        *rows, width = shape or (1,)
        if width % block:
            raise _Damaged(f"rows of {width} numbers are no blocks of {block} ({kind.name})")
        row_bytes = width // block * block_bytes
        self._at = start + offset
        data = self._take(int(np.prod(rows, dtype=object)) * row_bytes if rows else row_bytes)
        return Tensor(shape, kind, data.reshape(*rows, row_bytes))
