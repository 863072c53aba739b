"""The common part of data sets of problems with golds, from files or from the hub.

A data set is a `Source`: its place on the hub, and the function that turns a row into an example. `register_source`
registers its loader.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.data.chat import Message, checked_message
from pods_jax.data.examples import Dataset, Example, register
from pods_jax.data.reading import SUFFIXES, BadRow, Row, file_rows, hub_rows
from pods_jax.errors import UserError
from pods_jax.fields import INT32, TEXT, check_fields, whole, without_nulls
from pods_jax.registry import nearest

NUM_TEST = 200
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Source:
    """A published data set.

    Attributes:
      name: name in the registry.
      hub: repository on the Hugging Face hub; configs: its configurations to read.
      train, test: the names of the splits on the hub; None where there is none.
      example: row fields -> Example, None for a row that is not part of the set; raises `BadRow`.
      task: the verifier of the golds.
      system: the system message; None for none.
      ids: fields that may hold a row's id; the first that is present does. No two rows of a split share an id.
      known_defects: kinds of bad rows in the published data; by default they are left out, with a warning.
      shuffled: whether rows are shuffled before a test split is taken from their end, since they are ordered by topic.
      num_test: number of rows -> number of those that become test problems, where there is no test split.
      conversations: the fields that may hold a prompt as a list of messages.
    """

    name: str
    hub: str
    example: Callable[[Mapping[str, Any]], Example | None]
    task: str
    system: str | None
    configs: Sequence[str | None] = (None,)
    train: str | None = "train"
    test: str | None = "test"
    ids: Sequence[str] = ("unique_id", "id", "idx")
    known_defects: tuple[type[BadRow], ...] = ()
    shuffled: bool = False
    num_test: Callable[[int], int] = lambda rows: NUM_TEST
    conversations: Sequence[str] = ("prompt", "problem", "question")


@dataclasses.dataclass(frozen=True)
class ProblemSetOptions:
    """Options of a loader, beside the path.

    Attributes:
      num_test: number of test problems. By default all of a test split, or 200 of data without one.
      on_bad: "error", or "skip" to leave out and count rows that are malformed, incomplete, repeated or without a gold.
        By default only known defects of the published data are left out and counted, each with a warning.
    """

    num_test: int | None = None
    on_bad: str | None = None


def register_source(source: Source) -> Callable[[str | None, Mapping, int], Dataset]:
    """Registers and returns the loader of a data set, a function (path, options, seed) -> Dataset.

    path: a folder with train and test files (.jsonl, .json, .parquet); a folder with other files, all of which are
    read; one file; or None for the hub. Files that belong to no split are split by `ProblemSetOptions.num_test`.

    The loader raises a UserError for unknown options, and for data that is missing, empty or malformed; the message
    names file and line.
    """

    def load(path: str | None, options: Mapping, seed: int) -> Dataset:
        return load_source(source, path, parse_options(source.name, options), seed)

    return register(source.name)(load)


def load_source(source: Source, path: str | None, options: ProblemSetOptions, seed: int) -> Dataset:
    """The data set of a source, as `register_source` says."""
    return _Loader(source, options, seed).load(path)


def parse_options(name: str, options: Mapping) -> ProblemSetOptions:
    """The options of a loader.

    Raises:
      UserError: for an unknown name or a value out of range.
    """
    known = [field.name for field in dataclasses.fields(ProblemSetOptions)]
    for option in options:
        if option not in known:
            raise UserError(f"data set {name}: unknown option '{option}': {nearest(option, known)}")
    check_fields(without_nulls(options), {"num_test": whole(-INT32), "on_bad": TEXT}, f"data set {name}")
    parsed = ProblemSetOptions(**options)
    if parsed.num_test is not None and parsed.num_test < 1:
        raise UserError(f"data set {name}: num_test is {parsed.num_test}, and must be at least 1")
    if parsed.on_bad not in (None, "error", "skip"):
        raise UserError(f"data set {name}: on_bad is '{parsed.on_bad}', and must be 'error' or 'skip'")
    return parsed


class _Loader:
    """One pass over a data set; counts what it skips."""

    def __init__(self, source: Source, options: ProblemSetOptions, seed: int):
        self.source = source
        self.options = options
        self.seed = seed
        self.skipped = 0

    def load(self, path: str | None) -> Dataset:
        splits = self.from_hub() if path is None else self.from_path(Path(path))
        train, test = (() if split is None else split for split in splits)
        return Dataset(
            train,
            test[: self.options.num_test],
            task=self.source.task,
            system=self.source.system,
            skipped=self.skipped,
        )

    def from_hub(self) -> tuple[Sequence[Example] | None, Sequence[Example]]:
        s = self.source
        train, test = (
            None if split is None else self.examples(hub_rows(s.hub, s.configs, split), f"{s.hub} {split}")
            for split in (s.train, s.test)
        )
        return self.split(train, s.hub) if test is None else (train, test)

    def from_path(self, path: Path) -> tuple[Sequence[Example] | None, Sequence[Example]]:
        if not path.is_dir():
            return self.split(self.of_files([path]), path)
        train, test = (_split_file(path, split) for split in ("train", "test"))
        others = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not train.exists() and not test.exists() and others:
            return self.split(self.of_files(others), path)
        if not train.exists() and not test.exists():
            raise UserError(f"{path}: the folder has no file that ends in {', '.join(SUFFIXES)}")
        if self.source.train is None and not train.exists():
            return None, self.of_files([test])
        if self.source.test is None and not test.exists():
            return self.split(self.of_files([train]), train)
        return self.of_files([train]), self.of_files([test])

    def of_files(self, paths: Sequence[Path]) -> tuple[Example, ...]:
        return tuple(example for path in paths for example in self.examples(file_rows(path), str(path)))

    def split(self, examples: Sequence[Example], place: object) -> tuple[Sequence[Example] | None, Sequence[Example]]:
        """Training and test examples from one file; all are test examples if the data set has no training split."""
        if self.source.train is None:
            return None, examples
        num_test = self.options.num_test or self.source.num_test(len(examples))
        if not num_test:
            return examples, ()
        if num_test >= len(examples):
            raise UserError(
                f"{place}: {num_test} test problems of {len(examples)} leave none for training: set num_test"
            )
        if self.source.shuffled:
            order = np.random.default_rng([self.seed, 0]).permutation(len(examples))
            examples = tuple(examples[place] for place in order)
        return examples[:-num_test], examples[-num_test:]

    def examples(self, rows: Iterable[Row], place: str) -> tuple[Example, ...]:
        """The examples of one file or hub split."""
        examples = []
        seen = {}
        first_bad = ""
        for row in rows:
            try:
                example = self.example(row, seen)
            except BadRow as error:
                self.leave_out(row, error)
                first_bad = first_bad or f"{row.where}: {error}"
                continue
            if example is not None:
                examples.append(dataclasses.replace(example, where=row.where, columns=row.fields()))
        if not examples:
            raise UserError(f"{place}: no row is usable: {first_bad}" if first_bad else f"{place}: the file is empty")
        return tuple(examples)

    def leave_out(self, row: Row, error: BadRow) -> None:
        """Counts the row, or raises a UserError if it may not be left out."""
        if self.options.on_bad is None and isinstance(error, self.source.known_defects):
            _log.warning("%s: %s: left out, a known defect of data set %s", row.where, error, self.source.name)
        elif self.options.on_bad != "skip":
            raise UserError(f"{row.where}: {error} (data.options.on_bad='skip' leaves such rows out)") from error
        self.skipped += 1

    def example(self, row: Row, seen: dict[str, str]) -> Example | None:
        fields, earlier = split_conversation(row.fields(), self.source.conversations)
        example = self.source.example(fields)
        name = next((str(fields[key]) for key in self.source.ids if fields.get(key) is not None), None)
        if name is not None and seen.setdefault(name, row.where) != row.where:
            raise BadRow(f"the same id '{name}' as {seen[name]}")
        return example and dataclasses.replace(example, earlier=earlier)


def split_conversation(
    fields: Mapping[str, Any], names: Sequence[str]
) -> tuple[Mapping[str, Any], tuple[Message, ...]]:
    """A row whose prompt is a list of messages, with the last message as its prompt; and the earlier messages.

    A row with another prompt stays as it is. names: the fields that may hold the prompt.

    Raises:
      BadRow: the list is no conversation that ends with the user.
    """
    for name in names:
        if not isinstance(turns := fields.get(name), list) or not turns:
            continue
        try:
            *earlier, last = map(checked_message, turns)
        except UserError as error:
            raise BadRow(f"'{name}': {error}") from error
        if last["role"] != "user":
            raise BadRow(f"'{name}': the last message is of {last['role']!r}, not of the user")
        return {**fields, name: last["content"]}, tuple(earlier)
    return fields, ()


def _split_file(folder: Path, split: str) -> Path:
    """The file of a split; if there is none, the path with the first suffix, which a message names as missing."""
    candidates = [folder / f"{split}{suffix}" for suffix in SUFFIXES]
    return next((path for path in candidates if path.exists()), candidates[0])


def text_field(fields: Mapping[str, Any], *names: str) -> str:
    """The first of the fields that holds a text that is not blank, stripped.

    Raises:
      BadRow: if there is none.
    """
    for name in names:
        if isinstance(fields.get(name), str) and fields[name].strip():
            return fields[name].strip()
    raise BadRow(f"expected a text that is not empty in '{names[0]}'" + "".join(f" or '{n}'" for n in names[1:]))
