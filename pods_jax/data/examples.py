"""What a data set is to the rest of the code: examples, a split, and the name of the rule that verifies answers."""

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
      gold: what `pods_jax.rewards.verify` compares an answer with.
      kind: a label by which evaluations are broken down ("" for none).
      where: the row of a file that it comes from, for messages ("" for generated examples).
      earlier: messages (role and content) before the user's, of a conversation; its system message stands above the
        data set's.
      columns: the row's fields by name, for reward functions of the user's.
    """

    prompt: str
    gold: str
    kind: str = ""
    where: str = dataclasses.field(default="", compare=False)
    earlier: tuple[Mapping[str, str], ...] = ()
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)


def columns_of(examples: Sequence[Example]) -> dict[str, list[Any]]:
    """Each column of the rows, None where a row lacks it; "prompts", "gold" and "kind" are the examples' own."""
    names = dict.fromkeys(name for example in examples for name in example.columns)
    return {name: [example.columns.get(name) for example in examples] for name in names} | {
        "prompts": [example.prompt for example in examples],
        "gold": [example.gold for example in examples],
        "kind": [example.kind for example in examples],
    }


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Finite training and test examples; sets that are for evaluation only have no training ones.

    Attributes:
      task: the name of the verifier for the golds.
      system: the system message, None for none.
      alphabet: the characters a character tokenizer needs, where a policy may be trained from scratch ("" where not).
      skipped: how many rows were left out as unusable.
      demonstrate: (generator, count) -> [(prompt, completion)] for a supervised warm start, where there is one.
    """

    train: tuple[Example, ...]
    test: tuple[Example, ...]
    task: str
    system: str | None = None
    alphabet: str = ""
    skipped: int = 0
    demonstrate: Callable[[np.random.Generator, int], list[tuple[str, str]]] | None = None


DATASETS: Registry = Registry("data set")
"""Loaders by name: (path: str | None, options: Mapping, seed: int) -> Dataset."""

register = DATASETS.register
