"""Task "reasoning_gym": the final answer gets the full score from the data set's own scorer.

The gold is a JSON object {"dataset": name, "entry": {"question", "answer", "metadata"}}. The answer is the marked one
(see `extract`). Without a marker it is the last line, without the part up to its last "=" ("12 + 30 = 42" is 42) unless
the gold answer contains "=" too. If the gold answer has several lines (a grid), it is the whole text.

Some scorers evaluate the answer as Python. Model text is never run: while an answer is scored, evaluation of strings
is refused. The exception is plain arithmetic (digits, + - * / and parentheses, no powers), which countdown and puzzle24
need.
"""

import contextlib
import functools
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from pods_jax import exact_json
from pods_jax.errors import UserError
from pods_jax.registry import nearest
from pods_jax.rewards.extract import after_thinking, final_answer
from pods_jax.rewards.verdict import Verdict, compared, no_answer, register

_ARITHMETIC = re.compile(r"[-+*/().0-9\s]{0,200}")
_scoring = threading.local()


def prepare() -> None:
    """Imports the package. UserError if it is not installed."""
    _package()


@register("reasoning_gym", prepare=prepare)
def verify(output: str, gold: str) -> Verdict:
    """Correct if the data set's scorer gives 1.0, and not if the scorer raises an exception.

    Raises:
      UserError: the package is missing, or the gold has another form or does not get the full score itself.
    """
    scorer, entry = _problem(gold)
    answer = read_answer(output, entry["answer"])
    if not answer:
        return no_answer()
    try:
        score = _score(scorer, answer, entry)
    except Exception as error:  # scorers parse the answer in many ways, and each way has its own exceptions
        return Verdict(False, answer, type(error).__name__)
    return compared(score >= 1.0, answer)


def read_answer(output: str, gold_answer: str) -> str:
    """The answer of an output, by the rule at the top of this file; empty if there is none."""
    marked = final_answer(output)
    if marked is not None:
        return marked
    text = after_thinking(output)
    if "\n" in gold_answer.strip():
        return text
    line = text.rpartition("\n")[2]
    return line if "=" in gold_answer else line.rpartition("=")[2].strip()


@functools.cache
def _package() -> ModuleType:
    try:
        import reasoning_gym
    except ImportError as error:
        raise UserError("reasoning_gym is not installed: pip install -e '.[smollm2]'") from error
    sys.addaudithook(_refuse_evaluation)
    return reasoning_gym


@functools.lru_cache(maxsize=1024)
def _problem(gold: str) -> tuple[Callable, Mapping[str, Any]]:
    """The scorer and the entry of a gold, after the entry's own answer got the full score."""
    try:
        problem = exact_json.loads(gold)
        name = str(problem["dataset"])
        entry = problem["entry"]
        answer = str(entry["answer"])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"reasoning_gym: the gold {gold[:80]!r} is not {{'dataset': .., 'entry': ..}}") from error
    known = _package().factory.DATASETS
    if name not in known:
        raise UserError(f"unknown reasoning_gym data set '{name}': {nearest(name, known)}")
    scorer = _package().get_score_answer_fn(name)
    if _score(scorer, answer, entry) < 1.0:
        raise UserError(
            f"reasoning_gym '{name}': the gold answer {answer[:80]!r} does not get the full score "
            "(scorers are not allowed to run answers as code)"
        )
    return scorer, entry


def _score(scorer: Callable, answer: str, entry: Mapping[str, Any]) -> float:
    arithmetic = _ARITHMETIC.fullmatch(answer) and "**" not in answer
    with contextlib.nullcontext() if arithmetic else _evaluation_refused():
        return float(scorer(answer, entry))


@contextlib.contextmanager
def _evaluation_refused() -> Iterator[None]:
    _scoring.guarded = True
    try:
        yield
    finally:
        _scoring.guarded = False


def _refuse_evaluation(event: str, arguments: tuple) -> None:
    """An audit hook: `eval` and `exec` of a string raise while an answer is scored."""
    if event == "exec" and getattr(_scoring, "guarded", False) and arguments[0].co_filename == "<string>":
        raise PermissionError("an answer may not be run")
