"""Verdicts, verifiers, and the registry of verifiers: for the pool, and for files that add a task."""

import dataclasses
from collections.abc import Callable

from pods_jax.registry import Registry


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of verifying one output.

    Attributes:
      correct: whether the output is right.
      answer: the answer that was read; None if there was none. It is in canonical form where the task has one, so that
        equal answers are equal strings.
      reason: "match", "mismatch", "no answer", "unparsed", "timeout", "crashed", or another short word.
    """

    correct: bool
    answer: str | None
    reason: str


def compared(correct: bool, answer: str) -> Verdict:
    """The verdict on an answer that was read and compared with the gold."""
    return Verdict(correct, answer, "match" if correct else "mismatch")


def no_answer() -> Verdict:
    """The verdict on an output without an answer."""
    return Verdict(False, None, "no answer")


def _nothing() -> None:
    pass


def _accept(gold: str) -> None:
    pass


def _undecided(output: str, gold: str) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Verifier:
    """The functions that verify a task's outputs, and the facts that decide in which process they run.

    Attributes:
      verify: (output, gold) -> Verdict. It returns for every output, and raises a `UserError` for a gold that it cannot
        use.
      bounded: whether the cost of `verify` is bounded by construction (linear string work, small numbers). Then it
        needs no deadline, and runs in the caller's process; all others run in worker processes, which can be killed.
      quick: (output, gold) -> Verdict or None. A bounded first layer, which runs in the caller's process and gives the
        same verdict as `verify`, or None; only then does a worker verify.
      check: (gold) -> None. It raises a `UserError` for a gold that cannot be used, or that does not equal itself.
      takes_columns: whether `verify` takes a third argument, the output's other columns by name (see
        `RewardPool.score`).
      prepare: work that a worker does once, before the first deadline starts to count, such as slow imports.
    """

    verify: Callable[[str, str], Verdict]
    bounded: bool = False
    quick: Callable[[str, str], Verdict | None] = _undecided
    check: Callable[[str], None] = _accept
    prepare: Callable[[], None] = _nothing
    takes_columns: bool = False


VERIFIERS: Registry[Verifier] = Registry("task")


def register(
    name: str,
    *,
    bounded: bool = False,
    quick: Callable[[str, str], Verdict | None] = _undecided,
    check: Callable[[str], None] = _accept,
    prepare: Callable[[], None] = _nothing,
):
    """Registers a function (output, gold) -> Verdict as the verifier of task `name`; see `Verifier`.

    Workers import the module that defines the function, so it must not be `__main__`.
    """

    def add(verify: Callable[[str, str], Verdict]) -> Callable[[str, str], Verdict]:
        VERIFIERS.register(name)(Verifier(verify, bounded, quick, check, prepare))
        return verify

    return add
