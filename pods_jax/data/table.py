"""Data set "table": rows of your own, from a file, a folder or the hub, with the names of the columns as options.

    --config.data.name=table --config.data.path=problems.csv \\
    --config.data.options="{'prompt': 'question', 'answer': 'answer', 'task': 'math'}"

docs/own_data.md is the guide.
"""

import dataclasses
import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from pods_jax.data.examples import Dataset, Example, register
from pods_jax.data.problems import NUM_TEST, ProblemSetOptions, Source, load_source, parse_options
from pods_jax.data.reading import SUFFIXES, BadRow
from pods_jax.errors import UserError
from pods_jax.fields import TEXT, check_fields, one_line, shown, without_nulls
from pods_jax.io import local_path
from pods_jax.model_files import HUB_ID
from pods_jax.registry import nearest

NAME = "table"


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """Options of the data set, beside those of `ProblemSetOptions`.

    Attributes:
      prompt: the column of the prompts: texts, or lists of messages with role and content, the user's last.
      answer: the column of the golds: texts or numbers. None: there are no golds, for rewards that need none.
      kind: the column of the kinds for which evaluations report separate scores; None: no kinds.
      task: the verifier of the golds, by name or as "module:function"; None: reward.task says it.
      config: of a hub data set: its configuration; None: its only one.
      split: of a hub data set: the split to train on.
      test_split: of a hub data set: the split to evaluate on; None: a part of `split`, drawn with the seed.
      test_path: a file of test problems, where data.path is a file; None: a part of it, drawn with the seed.
    """

    prompt: str = "prompt"
    answer: str | None = "answer"
    kind: str | None = None
    task: str | None = None
    config: str | None = None
    split: str = "train"
    test_split: str | None = None
    test_path: str | None = None


OF_THE_HUB = ("config", "split", "test_split")


@register(NAME)
def load(path: str | None, options: Mapping, seed: int) -> Dataset:
    """The examples of a table.

    Without a test split or file, a tenth of the rows (200 at most; `num_test` of them, if given), drawn with the seed,
    are test problems.

    Args:
      path: a file (.jsonl, .json, .csv, .parquet), a folder of such files, or a hub id "org/name".
      options: fields of `TableOptions` and `ProblemSetOptions`.

    Raises:
      UserError: unknown options, nothing at the path, a column that the rows lack, or a row that is malformed; the
        message names file and row.
    """
    o, common = _parse(options)
    source = Source(
        NAME,
        hub=str(path),
        configs=(o.config,),
        train=o.split,
        test=o.test_split,
        example=lambda fields: _example(o, fields),
        task=o.task or "",
        system=None,
        ids=(),
        shuffled=True,
        num_test=lambda rows: min(NUM_TEST, max(1, rows // 10)),
        conversations=(o.prompt,),
    )
    if _is_on_hub(path):
        return load_source(source, None, common, seed)
    if given := [name for name in OF_THE_HUB if name in options]:
        raise UserError(f"data set table: option '{given[0]}' is for data sets of the hub, and {path} is a file")
    if o.test_path is None:
        return load_source(source, path, common, seed)
    only_tests = dataclasses.replace(source, train=None)
    test = load_source(only_tests, str(local_path(o.test_path, "data.options.test_path")), common, seed)
    train = load_source(dataclasses.replace(source, num_test=lambda _: 0), path, _without_test(common), seed)
    return dataclasses.replace(train, test=test.test, skipped=train.skipped + test.skipped)


def _without_test(options: ProblemSetOptions) -> ProblemSetOptions:
    return dataclasses.replace(options, num_test=None)


def _parse(options: Mapping) -> tuple[TableOptions, ProblemSetOptions]:
    own = [field.name for field in dataclasses.fields(TableOptions)]
    common = [field.name for field in dataclasses.fields(ProblemSetOptions)]
    for name in options:
        if name not in (*own, *common):
            raise UserError(f"data set table: unknown option '{name}': {nearest(name, (*own, *common))}")
    given = {name: value for name, value in options.items() if name in own}
    check_fields(without_nulls(given), dict.fromkeys(own, TEXT), "data set table")
    if given.get("prompt", "") is None or given.get("split", "") is None:
        raise UserError("data set table: 'prompt' and 'split' must be texts, got None")
    parsed = TableOptions(**given)
    if parsed.answer is None and ":" not in (parsed.task or ":"):
        raise UserError(f"data set table: task '{parsed.task}' compares with golds: option 'answer' must name a column")
    return parsed, parse_options(NAME, {name: value for name, value in options.items() if name in common})


def _is_on_hub(path: str | None) -> bool:
    """Whether the path names a data set of the hub. UserError if it names nothing."""
    if path is None:
        raise UserError("data set table: set data.path to a file, a folder, or a hub id 'org/name'")
    if Path(path).exists():
        return False
    if HUB_ID.fullmatch(path) and Path(path).suffix not in SUFFIXES:
        return True
    raise UserError(f"data.path = '{path}': there is no such file or folder, and it is no hub id 'org/name'")


# ---------------------------------------------------------------- rows


def _example(o: TableOptions, fields: Mapping[str, Any]) -> Example:
    prompt = _column(fields, o.prompt)
    if not isinstance(prompt, str):
        raise BadRow(f"column '{o.prompt}' must be a text or a list of messages, found {shown(prompt)}")
    if not prompt.strip():
        raise BadRow(f"column '{o.prompt}' is empty")
    gold = "" if o.answer is None else _gold(fields, o.answer)
    return Example(prompt, gold, "" if o.kind is None else _kind(fields, o.kind))


def _column(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise BadRow(f"no column '{name}' (there are: {one_line(', '.join(map(str, fields)))})")
    return fields[name]


def _gold(fields: Mapping[str, Any], name: str) -> str:
    """The gold as text; whole numbers have no decimal point, which Parquet gives to integers beside missing values."""
    value = _column(fields, name)
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or (isinstance(value, float | Decimal) and math.isfinite(value))
    if not number and not isinstance(value, str):
        raise BadRow(f"column '{name}' must be a text or a number, found {shown(value)}")
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if not text:
        raise BadRow(f"column '{name}' is empty")
    return text


def _kind(fields: Mapping[str, Any], name: str) -> str:
    value = _column(fields, name)
    if not isinstance(value, str | int | None):
        raise BadRow(f"column '{name}' must be a text, found {shown(value)}")
    return "" if value is None else str(value)
