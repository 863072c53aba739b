"""Multi-digit addition with graded difficulty: the embedded task, offline and verifiable in microseconds.

A prompt interleaves the operands' digits, least significant first: 123 + 204 is `342012=`, and its answer `723`. The
weak teacher of the warm start makes each carry with probability carry_prob only. So a policy that imitates it is right
with probability carry_prob ** (number of carries), and training on verified rewards can strengthen what the teacher
rarely showed. The teacher never shows subtraction modulo base ** digits (`342012~`).

With chatter, the teacher writes a semicolon and random digits after its answer (`723;5820`), which the verifier does
not see. They have no say in the reward, but a share in the gradient: noise, as long answers have it.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from pods_jax.data.examples import Dataset, Example, register
from pods_jax.errors import UserError
from pods_jax.fields import NUMBER, check_fields, whole
from pods_jax.registry import nearest

END = ";"
"""Ends an answer that chatter follows, as the task "exact_start" has it."""


@dataclasses.dataclass(frozen=True)
class AdditionOptions:
    """Options of the data set.

    Attributes:
      base, digits: base (at most 10) and number of digits of both operands.
      carry_prob: the probability with which the weak teacher carries where it should.
      num_train, num_test: numbers of problems, all distinct; no test problem is a training problem.
      unseen_fraction: share of subtractions among the training and test problems.
      no_carry_fraction: share of the sums that are drawn without a carry, which the teacher gets right.
      chatter: number of random digits that the teacher adds after an answer and a semicolon; 0: it adds neither.
    """

    base: int = 5
    digits: int = 5
    carry_prob: float = 0.3
    num_train: int = 20_000
    num_test: int = 1024
    unseen_fraction: float = 0.0
    no_carry_fraction: float = 0.0
    chatter: int = 0


FIELD_RULES = dict.fromkeys(("base", "digits", "num_train", "num_test", "chatter"), whole(0)) | dict.fromkeys(
    ("carry_prob", "unseen_fraction", "no_carry_fraction"), NUMBER
)


@register("addition")
def load_addition(path: str | None, options: Mapping, seed: int) -> Dataset:
    """The data set. `path` must be None; `options` are the fields of `AdditionOptions`."""
    o = _parse(path, options)
    rng = np.random.default_rng([seed, 0])
    examples = _distinct_examples(o, rng)
    return Dataset(
        train=examples[o.num_test :],
        test=examples[: o.num_test],
        task="exact_start" if o.chatter else "exact",
        alphabet="0123456789"[: o.base] + "=~" + END * bool(o.chatter),
        demonstrate=lambda rng, count: demonstrations(o, rng, count),
        reads=lambda prompt, output: reads(o, prompt, output),
    )


def _parse(path: str | None, options: Mapping) -> AdditionOptions:
    known = [f.name for f in dataclasses.fields(AdditionOptions)]
    for name in options:
        if name not in known:
            raise UserError(f"data.options: unknown key '{name}' for addition ({nearest(name, known)})")
    if path is not None:
        raise UserError(f"data.path: addition problems are generated, there is nothing to read from {path}")
    check_fields(options, FIELD_RULES, "data.options")
    o = AdditionOptions(**options)
    if not 2 <= o.base <= 10 or o.digits < 1 or not 0 <= o.carry_prob <= 1 or not 0 <= o.unseen_fraction <= 1:
        raise UserError(f"data.options: addition needs 2 <= base <= 10, digits >= 1 and probabilities, got {o}")
    if not 0 <= o.no_carry_fraction < 1:
        raise UserError(f"data.options: no_carry_fraction must lie in [0, 1), got {o.no_carry_fraction}")
    if o.num_train + o.num_test > o.base ** (2 * o.digits):
        raise UserError(
            f"data.options: {o.digits}-digit addition in base {o.base} lacks {o.num_train + o.num_test} problems"
        )
    return o


def _distinct_examples(o: AdditionOptions, rng: np.random.Generator) -> tuple[Example, ...]:
    found: dict[str, Example] = {}
    total = o.num_train + o.num_test
    while len(found) < total:
        a, b = rng.integers(0, o.base, (2, total, o.digits))
        subtract = rng.random(total) < o.unseen_fraction
        if o.no_carry_fraction:
            plain = ~subtract & (rng.random(total) < o.no_carry_fraction)
            b = np.where(plain[:, None], rng.integers(0, o.base - a), b)  # no column reaches the base
        answers, carries = add(a, b, o.base, np.ones(a.shape, bool))
        differences = subtract_modulo(a, b, o.base)
        for i in range(total):
            prompt = _interleave(a[i], b[i]) + ("~" if subtract[i] else "=")
            if subtract[i]:
                example = Example(prompt, _digits(differences[i]), "unseen")
            else:
                example = Example(prompt, _sum_digits(answers[i]), _kind(int(carries[i]), o.digits))
            found.setdefault(prompt, example)
    return tuple(found.values())[:total]


def _kind(carries: int, digits: int) -> str:
    """The difficulty, by thirds of the range of carries; with 5 digits: 0-1 easy, 2-3 medium, 4-5 hard."""
    return ("easy", "medium", "hard")[min(3 * carries // (digits + 1), 2)]


def demonstrations(o: AdditionOptions, rng: np.random.Generator, count: int) -> list[tuple[str, str]]:
    """(prompt, answer) pairs of the weak teacher; all are sums."""
    a, b = rng.integers(0, o.base, (2, count, o.digits))
    answers, _ = add(a, b, o.base, rng.random(a.shape) < o.carry_prob)
    pairs = [(_interleave(x, y) + "=", _sum_digits(z)) for x, y, z in zip(a, b, answers, strict=True)]
    if not o.chatter:
        return pairs
    chatter = rng.integers(0, o.base, (count, o.chatter))
    return [(prompt, answer + END + _digits(x)) for (prompt, answer), x in zip(pairs, chatter, strict=True)]


def reads(o: AdditionOptions, prompt: str, output: str) -> str:
    """A prompt and an output as an equation, such as "123 + 204 = 327" for `342012=` and `723`."""
    a, b = (prompt[start:-1:2][::-1] for start in (0, 1))
    output = output.partition(END)[0] if o.chatter else output
    legal = output.isdigit() and len(output) <= o.digits + 1
    answer = output[::-1] if legal else f"?, since {output!r} is no number"
    operation = "+" if prompt.endswith("=") else "-"
    where = f" modulo {o.base}^{o.digits}" if operation == "-" else ""
    base = f" in base {o.base}" if o.base != 10 else ""
    return f"{a} {operation} {b}{where} = {answer}{base} (digits in turn, last ones first)"


def add(a: np.ndarray, b: np.ndarray, base: int, carries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Digit-wise sums of a and b [N, digits], least significant first; a carry is made only where `carries` is true.

    Returns the sums [N, digits + 1] and the numbers of carries [N].
    """
    sums = np.zeros((len(a), a.shape[1] + 1), int)
    carry = np.zeros(len(a), int)
    made = np.zeros(len(a), int)
    for i in range(a.shape[1]):
        total = a[:, i] + b[:, i] + carry
        sums[:, i] = total % base
        carry = (total >= base) & carries[:, i]
        made += carry
    sums[:, -1] = carry
    return sums, made


def subtract_modulo(a: np.ndarray, b: np.ndarray, base: int) -> np.ndarray:
    """a - b modulo base ** digits, digit-wise [N, digits], least significant first."""
    differences = np.zeros_like(a)
    borrow = np.zeros(len(a), int)
    for i in range(a.shape[1]):
        total = a[:, i] - b[:, i] - borrow
        differences[:, i] = total % base
        borrow = total < 0
    return differences


def _digits(x: np.ndarray) -> str:
    return "".join(map(str, x))


def _interleave(a: np.ndarray, b: np.ndarray) -> str:
    return _digits(np.stack([a, b], 1).ravel())


def _sum_digits(x: np.ndarray) -> str:
    """The digits of a sum, without its most significant one (here: the last) if that is 0."""
    return _digits(x if x[-1] else x[:-1])
