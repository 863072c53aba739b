"""Data set "reasoning_gym": any of its procedural data sets, such as "chain_sum" or "gsm_symbolic"."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from pods_jax.data.examples import Dataset, Example, register
from pods_jax.errors import UserError
from pods_jax.fields import OBJECT, TEXT, check_fields, whole
from pods_jax.registry import nearest

SYSTEM = "Answer with the final answer only, without explanation."

# Entry i of a procedural data set is drawn from seed + i: neighbouring seeds would share all entries but one.
SEED_STRIDE = 1_000_003
MAX_DRAWS_PER_EXAMPLE = 20
MAX_REJECTED_AT_START = 20


@dataclasses.dataclass(frozen=True)
class Options:
    """What to generate.

    Attributes:
      dataset: its name in reasoning_gym.
      num_train: how many training examples.
      num_test: how many test examples.
      params: passed on to its configuration, for example {"min_terms": 2, "max_terms": 3}.
    """

    dataset: str
    num_train: int
    num_test: int
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


RULES = {"dataset": TEXT, "num_train": whole(0), "num_test": whole(0), "params": OBJECT}


@register("reasoning_gym")
def load(path: str | None, options: Mapping, seed: int) -> Dataset:
    """Generates examples: first the test split, of distinct questions, then training examples with other questions.

    Entries whose own answer does not get the full score from their own scorer are left out: nobody could solve them.

    Args:
      path: must be None.
      options: the fields of `Options`.
      seed: of the generator.

    Raises:
      UserError: for a missing package, unknown names, bad parameters, or too few different questions.
    """
    if path is not None:
        raise UserError(f"data set reasoning_gym is generated: data.path must be None, found '{path}'")
    wanted = _options(options)
    examples = _solvable(wanted, seed)
    test = tuple(itertools.islice(_distinct(examples), wanted.num_test))
    tested = {example.prompt for example in test}
    train = tuple(itertools.islice((e for e in examples if e.prompt not in tested), wanted.num_train))
    if len(test) < wanted.num_test or len(train) < wanted.num_train:
        raise UserError(
            f"reasoning_gym '{wanted.dataset}' gave {len(test)} of {wanted.num_test} different test examples and "
            f"{len(train)} of {wanted.num_train} for training: ask for fewer, or widen params"
        )
    return Dataset(train, test, task="reasoning_gym", system=SYSTEM)


def _options(options: Mapping) -> Options:
    _check_names(options, [field.name for field in dataclasses.fields(Options)], "data set reasoning_gym: option")
    missing = {"dataset", "num_train", "num_test"} - set(options)
    if missing:
        raise UserError(f"data set reasoning_gym: missing option '{min(missing)}'")
    check_fields(options, RULES, "data set reasoning_gym")
    wanted = Options(**options)
    if min(wanted.num_train, wanted.num_test) < 1:
        raise UserError("data set reasoning_gym: num_train and num_test must be at least 1")
    return wanted


def _distinct(examples: Iterable[Example]) -> Iterator[Example]:
    seen = set()
    for example in examples:
        if example.prompt not in seen:
            seen.add(example.prompt)
            yield example


def _solvable(wanted: Options, seed: int) -> Iterator[Example]:
    """Examples whose gold, as the verifier will read it, gets the full score."""
    entries, score = _generator(wanted, seed)
    found = False
    for number, entry in enumerate(entries):
        gold = _gold(wanted.dataset, entry)
        if isinstance(entry["answer"], str) and score(entry["answer"], json.loads(gold)["entry"]) >= 1.0:
            found = True
            yield Example(entry["question"], gold)
        elif not found and number + 1 >= MAX_REJECTED_AT_START:
            raise UserError(f"reasoning_gym '{wanted.dataset}': its scorer rejects its own answers")


def _gold(dataset: str, entry: Mapping[str, Any]) -> str:
    """What the verifier of task "reasoning_gym" reads; fractions and the like in the metadata become strings."""
    kept = {field: entry[field] for field in ("question", "answer", "metadata")}
    return json.dumps({"dataset": dataset, "entry": kept}, default=str)


def _generator(wanted: Options, seed: int) -> tuple[Iterator[Mapping[str, Any]], Callable]:
    """The entries, as many as may be drawn, and their scorer."""
    package, name = _package(), wanted.dataset
    known = package.factory.DATASETS
    _check_names([name], known, "reasoning_gym data set")
    fields = {field.name for field in dataclasses.fields(known[name][1])} - {"seed", "size"}
    _check_names(wanted.params, sorted(fields), f"reasoning_gym '{name}': parameter")
    draws = MAX_DRAWS_PER_EXAMPLE * (wanted.num_train + wanted.num_test)
    try:
        generator = package.create_dataset(name, seed=seed * SEED_STRIDE, size=draws, **wanted.params)
        scorer = package.get_score_answer_fn(name)
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(f"reasoning_gym '{name}': bad params {dict(wanted.params)}: {error}") from error
    return (generator[index] for index in range(draws)), scorer


def _check_names(names: Iterable[str], known: Iterable[str], what: str) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise UserError(f"{what} '{name}' is unknown: {nearest(name, known)}")


def _package() -> ModuleType:
    try:
        import reasoning_gym
    except ImportError as error:
        raise UserError("reasoning_gym is not installed: pip install -e '.[smollm2]'") from error
    return reasoning_gym
