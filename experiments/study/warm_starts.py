"""Warm starts whose accuracy lies within bounds: seeds in turn are measured, and remembered in a small file."""

import json
from collections.abc import Callable
from pathlib import Path

from pods_jax.errors import UserError
from pods_jax.io import read_json, write_atomic

LIMIT = 200
"""Seeds that are tried at most."""


def accepted(
    file: Path, definition: str, bounds: tuple[float, float], count: int, measure: Callable[[int], float]
) -> list[int]:
    """The first seeds whose warm start is accepted.

    Args:
      file: of accuracies by seed, which grows.
      definition: of the warm start, which the file must share.
      bounds: least and largest accuracy.
      measure: seed -> accuracy of its warm start; called for the seeds that the file lacks.

    Raises:
      UserError: the file has another definition, or too few of the first `LIMIT` seeds are accepted.
    """
    found = read_json(file) if file.is_file() else {"definition": definition, "accuracy": {}}
    if found["definition"] != definition:
        raise UserError(f"{file} was made by another definition of the study; delete it to make it anew")
    seeds: list[int] = []
    for seed in range(LIMIT):
        if len(seeds) == count:
            return seeds
        if str(seed) not in found["accuracy"]:
            found["accuracy"][str(seed)] = measure(seed)
            write_atomic(file, json.dumps(found) + "\n")
        if bounds[0] <= found["accuracy"][str(seed)] <= bounds[1]:
            seeds.append(seed)
    raise UserError(f"{file}: {len(seeds)} of the first {LIMIT} warm starts have an accuracy within {bounds}")
