"""Data sets as the rest of the code sees them: training and test examples, and the task that verifies outputs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pods_jax.registry import Registry


@dataclasses.dataclass(frozen=True)
class Example:
    """One problem.

    Attributes:
      prompt: the user's message (or, for tokenizers without a chat template, the raw prompt).
      gold: text that `pods_jax.rewards.verify` compares an output with.
      kind: a label for which evaluations report separate scores ("" for none).
      where: the file and row that the example comes from, for error messages ("" for generated examples).
      earlier: the messages (role and content) of a conversation before the user's last one. A system message among them
        replaces the data set's.
      columns: the row's fields by name, for the user's reward functions.
    """

    prompt: str
    gold: str
    kind: str = ""
    where: str = dataclasses.field(default="", compare=False)
    earlier: tuple[Mapping[str, str], ...] = ()
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)


def columns_of(examples: Sequence[Example]) -> dict[str, list[Any]]:
    """Every column of the rows, with None where a row lacks it, and "prompts", "gold" and "kind" of the examples."""
    names = dict.fromkeys(name for example in examples for name in example.columns)
    return {name: [example.columns.get(name) for example in examples] for name in names} | {
        "prompts": [example.prompt for example in examples],
        "gold": [example.gold for example in examples],
        "kind": [example.kind for example in examples],
    }


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Finitely many training and test examples. A data set for evaluation only has no training examples.

    Attributes:
      task: the name of the verifier for the golds.
      system: the system message; None for none.
      alphabet: characters of the character tokenizer, if a policy can be trained from scratch on the set; else "".
      skipped: number of unusable rows that were left out.
      demonstrate: (generator, count) -> [(prompt, completion)], for a supervised warm start; None if there is none.
      reads: (prompt, output) -> a line that writes both out for a person; None where they can be read as they are.
    """

    train: tuple[Example, ...]
    test: tuple[Example, ...]
    task: str
    system: str | None = None
    alphabet: str = ""
    skipped: int = 0
    demonstrate: Callable[[np.random.Generator, int], list[tuple[str, str]]] | None = None
    reads: Callable[[str, str], str] | None = None


DATASETS: Registry = Registry("data set")
"""Loaders by name: (path: str | None, options: Mapping, seed: int) -> Dataset."""

register = DATASETS.register
