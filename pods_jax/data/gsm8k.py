"""Data set "gsm8k": grade school word problems (Cobbe et al. 2021, arXiv 2110.14168), from files or from the hub.

Records have the fields `question` and `answer`; the gold is what follows "####" in the answer, without commas.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pods_jax.data.examples import Dataset, Example, register
from pods_jax.errors import UserError
from pods_jax.registry import nearest

HUB_ID = "openai/gsm8k"
SYSTEM = (
    "Solve the problem step by step. Then write the final answer, a number without a unit, on a last line of its own "
    "after ####."
)
NUM_TEST = 200

_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")


@register("gsm8k")
def load(path: str | None, options: Mapping, seed: int) -> Dataset:
    """Loads the two splits, in the order of their files (the seed has no effect).

    Args:
      path: a folder with `train.jsonl` and `test.jsonl`; or one `.jsonl` file, whose last `num_test` problems are the
        test split; or None for the hub.
      options: `num_test`: how many test problems. By default all that a folder or the hub has, and 200 of one file.
      seed: unused.

    Raises:
      UserError: for a file that is missing, empty or malformed (naming the line), an unknown option, or no network.
    """
    num_test = _num_test(options)
    if path is None:
        train, test = (_from_hub(split) for split in ("train", "test"))
    elif Path(path).is_dir():
        train, test = (_from_file(Path(path) / f"{split}.jsonl") for split in ("train", "test"))
    else:
        train, test = _split(_from_file(Path(path)), num_test or NUM_TEST, path)
    return Dataset(train, test[:num_test], task="gsm8k", system=SYSTEM)


def _num_test(options: Mapping) -> int | None:
    for name in options:
        if name != "num_test":
            raise UserError(f"data set gsm8k: unknown option '{name}': {nearest(name, ['num_test'])}")
    num_test = options.get("num_test")
    if num_test is not None and num_test < 1:
        raise UserError(f"data set gsm8k: num_test is {num_test}, and must be at least 1")
    return num_test


def _split(examples: tuple[Example, ...], num_test: int, path: str) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    if num_test >= len(examples):
        raise UserError(f"{path}: {num_test} test problems of {len(examples)} leave none for training: set num_test")
    return examples[:-num_test], examples[-num_test:]


def _from_hub(split: str) -> tuple[Example, ...]:
    import datasets  # a second of imports that file users are spared

    try:
        records = datasets.load_dataset(HUB_ID, "main", split=split)
    except OSError as error:
        raise UserError(
            f"cannot load {HUB_ID} from the Hugging Face hub ({error}); offline, set data.path to a folder with "
            "train.jsonl and test.jsonl"
        ) from error
    return tuple(_example(record, f"{HUB_ID} {split}:{number}") for number, record in enumerate(records, start=1))


def _from_file(path: Path) -> tuple[Example, ...]:
    examples = tuple(_example(record, where) for where, record in _records(path))
    if not examples:
        raise UserError(f"{path}: the file is empty")
    return examples


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """("file:line", record) for the lines that are not blank."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                yield where, json.loads(line)
            except ValueError as error:
                raise UserError(f"{where}: not JSON: {error}") from error


def _example(record: Any, where: str) -> Example:
    fields = [record.get(field) if isinstance(record, dict) else None for field in ("question", "answer")]
    if not all(isinstance(field, str) for field in fields):
        raise UserError(f"{where}: expected an object with the texts 'question' and 'answer'")
    question, answer = fields
    _, mark, gold = answer.rpartition("####")
    gold = gold.strip().replace(",", "")
    if not mark or not _NUMBER.fullmatch(gold):
        raise UserError(f"{where}: expected the answer to end in '#### ' and a number, found {answer[-40:]!r}")
    return Example(question.strip(), gold)
