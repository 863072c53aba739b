"""Data set "reasoning_gym": any of its procedural data sets, such as "chain_sum" or "gsm_symbolic"."""

import contextlib
import dataclasses
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from pods_jax import exact_json
from pods_jax.data.examples import Dataset, Example, register
from pods_jax.errors import UserError
from pods_jax.fields import OBJECT, TEXT, check_fields, whole
from pods_jax.registry import nearest

SYSTEM = "Answer with the final answer only, without explanation."

# Entry i of a procedural data set is drawn from seed + i, so neighbouring seeds would share all entries but one.
SEED_STRIDE = 1_000_003
MAX_DRAWS_PER_EXAMPLE = 20
MAX_REJECTED_AT_START = 20

NUM_PROBED = 24
MIN_PAID = 4
CONSTANTS = ("", "0", "1", "-1", "2", "0.0", "1e400", "nan", "inf", "-inf", "0j", "yes", "no", "True", "False", "None",
             "[]", "{}", "()", "(", "-", "a", "A", "?", "impossible", "6+6+6+6", "24", "x", "0 0", "[[]]")  # fmt: skip
"""Answers that do not depend on the problem. A scorer that pays one of them teaches a policy to give it always."""


@dataclasses.dataclass(frozen=True)
class ReasoningGymOptions:
    """Options of the data set.

    Attributes:
      dataset: name of a procedural data set in reasoning_gym.
      num_train: number of training examples.
      num_test: number of test examples.
      params: its parameters, for example {"min_terms": 2, "max_terms": 3}.
    """

    dataset: str
    num_train: int
    num_test: int
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


FIELD_RULES = {"dataset": TEXT, "num_train": whole(0), "num_test": whole(0), "params": OBJECT}


@register("reasoning_gym")
def load(path: str | None, options: Mapping, seed: int) -> Dataset:
    """Generates examples: first the test split of distinct questions, then training examples with other questions.

    An entry whose own answer does not get the full score from the data set's scorer is left out: nobody could solve it.
    A data set whose scorer gives a constant answer the full score on most problems is refused.

    Args:
      path: must be None.
      options: the fields of `ReasoningGymOptions`.
      seed: the generator's seed.

    Raises:
      UserError: the package is missing, a name is unknown, a parameter is bad, there are too few different questions,
        or the scorer pays a constant or rejects the entries' own answers.
    """
    if path is not None:
        raise UserError(f"data set reasoning_gym is generated: data.path must be None, found '{path}'")
    wanted = _options(options)
    entries, score = _generator(wanted, seed)
    examples = _solvable(wanted.dataset, entries, score)
    probed = tuple(itertools.islice(examples, NUM_PROBED))
    _refuse_paid_constants(wanted.dataset, probed, score)
    examples = itertools.chain(probed, examples)
    test = tuple(itertools.islice(_distinct(examples), wanted.num_test))
    tested = {example.prompt for example in test}
    train = tuple(itertools.islice((e for e in examples if e.prompt not in tested), wanted.num_train))
    if len(test) < wanted.num_test or len(train) < wanted.num_train:
        raise UserError(
            f"reasoning_gym '{wanted.dataset}' gave {len(test)} of {wanted.num_test} different test examples and "
            f"{len(train)} of {wanted.num_train} for training: ask for fewer, or widen params"
        )
    return Dataset(train, test, task="reasoning_gym", system=SYSTEM)


def _options(options: Mapping) -> ReasoningGymOptions:
    _check_names(
        options, [field.name for field in dataclasses.fields(ReasoningGymOptions)], "data set reasoning_gym: option"
    )
    missing = {"dataset", "num_train", "num_test"} - set(options)
    if missing:
        raise UserError(f"data set reasoning_gym: missing option '{min(missing)}'")
    check_fields(options, FIELD_RULES, "data set reasoning_gym")
    wanted = ReasoningGymOptions(**options)
    if min(wanted.num_train, wanted.num_test) < 1:
        raise UserError("data set reasoning_gym: num_train and num_test must be at least 1")
    return wanted


def _distinct(examples: Iterable[Example]) -> Iterator[Example]:
    seen = set()
    for example in examples:
        if example.prompt not in seen:
            seen.add(example.prompt)
            yield example


def _solvable(dataset: str, entries: Iterable[Mapping[str, Any]], score: Callable) -> Iterator[Example]:
    """The examples whose answer gets the full score, with the entry as the verifier reads it from the gold."""
    found = False
    for number, entry in enumerate(entries):
        gold = _gold(dataset, entry)
        answer = entry["answer"]
        if isinstance(answer, str) and _is_paid(score, answer, exact_json.loads(gold)["entry"]):
            found = True
            yield Example(entry["question"], gold, columns=entry)
        elif not found and number + 1 >= MAX_REJECTED_AT_START:
            paid = isinstance(answer, str) and _is_paid(score, answer, entry)
            why = "its entries do not survive being written as JSON" if paid else "its scorer rejects its own answers"
            raise UserError(f"reasoning_gym '{dataset}': {why}")


def _gold(dataset: str, entry: Mapping[str, Any]) -> str:
    """The gold, for the verifier of task "reasoning_gym"; values that JSON lacks, such as fractions, become texts."""
    kept = {field: entry[field] for field in ("question", "answer", "metadata")}
    return exact_json.dumps({"dataset": dataset, "entry": kept})


def _refuse_paid_constants(dataset: str, examples: Sequence[Example], score: Callable) -> None:
    """Raises a UserError if a constant gets the full score on most problems with another gold, or on nearly all.

    A frequent gold, such as "yes", may get it where it is the gold.
    """
    entries = [exact_json.loads(example.gold)["entry"] for example in examples]
    golds = [str(entry["answer"]).strip().casefold() for entry in entries]
    for constant in dict.fromkeys((*CONSTANTS, *(entry["answer"] for entry in entries[:3]))):
        paid = [_is_paid(score, constant, entry) for entry in entries]
        others = [pays for pays, gold in zip(paid, golds, strict=True) if gold != constant.strip().casefold()]
        if sum(others) > max(MIN_PAID, len(others) / 2) or sum(paid) > max(MIN_PAID, 0.9 * len(paid)):
            raise UserError(
                f"reasoning_gym '{dataset}': its scorer gives the answer {constant[:40]!r} the full score on "
                f"{sum(paid)} of {len(paid)} problems, so that a policy would learn to give it always"
            )


def _is_paid(score: Callable, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the answer gets the full score. It does not if the scorer fails on it, as scorers do in many ways."""
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        return float(score(answer, entry)) >= 1.0
    return False


def _generator(wanted: ReasoningGymOptions, seed: int) -> tuple[Iterator[Mapping[str, Any]], Callable]:
    """The entries, up to the number that may be drawn, and their scorer."""
    package = _package()
    name = wanted.dataset
    known = package.factory.DATASETS
    _check_names([name], known, "reasoning_gym data set")
    fields = {field.name for field in dataclasses.fields(known[name][1])} - {"seed", "size"}
    _check_names(wanted.params, sorted(fields), f"reasoning_gym '{name}': parameter")
    draws = max(NUM_PROBED, MAX_DRAWS_PER_EXAMPLE * (wanted.num_train + wanted.num_test))
    try:
        generator = package.create_dataset(name, seed=seed * SEED_STRIDE, size=draws, **wanted.params)
        scorer = package.get_score_answer_fn(name)
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(f"reasoning_gym '{name}': bad params {dict(wanted.params)}: {error}") from error
    return _drawn(name, generator, draws), scorer


def _drawn(name: str, generator: Any, count: int) -> Iterator[Mapping[str, Any]]:
    for index in range(count):
        try:
            yield generator[index]
        except Exception as error:  # generators give up in many ways
            raise UserError(f"reasoning_gym '{name}' failed to make a problem: {error}") from error


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
