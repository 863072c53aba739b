"""The authors' published runs as one small file of numbers, from which the figures can be drawn without their logs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.analysis.paper import PublishedRuns, Read, Runs, all_runs
from pods_jax.errors import UserError
from pods_jax.io import read_json, write_atomic

SOURCE = {
    "what": "accuracy in [0, 1] and mean length in tokens of every run at every evaluation, and steps until then",
    "source": "results/ of github.com/YixuanEvenXu/pods, commit 187f43b, Apache-2.0; Xu et al. 2025, arXiv 2504.13818",
    "made_by": "python experiments/figures.py --published RESULTS --compact docs/published/pods.json",
}
DIGITS = {"accuracy": 5, "length": 1, "steps": 2}
"""Decimals that are kept. An evaluation has five times 1,319 answers or fewer: its accuracies lie 1.5e-4 apart."""


def write_compact(folder: Path, file: Path) -> None:
    """Writes the numbers of all figures, given the `results/` folder of the authors' repository.

    Raises:
      UserError: the folder lacks runs, or one of its files is damaged.
    """
    runs = {runs.name: _rounded(runs.read(folder)) for runs in all_runs()}
    text = json.dumps(SOURCE | {"runs": runs}, separators=(",", ":"))
    write_atomic(file, text.replace('"runs":{', '\n"runs":{\n').replace("]]},", "]]},\n") + "\n")


def _rounded(runs: PublishedRuns) -> dict[str, list]:
    """The values by name, [S, E] each; whole numbers as integers."""
    values = {"accuracy": runs.accuracy.y, "length": runs.length.y, "steps": runs.steps}
    return {name: _numbers(array, DIGITS[name]) for name, array in values.items()}


def _numbers(array: np.ndarray, digits: int) -> list[list[float | int]]:
    rows = np.round(array, digits).tolist()
    return [[_number(x) for x in row] for row in rows]


def _number(value: float | int) -> float | int:
    return int(value) if value == int(value) else value


def reader(source: Path) -> Read:
    """Reads runs from the `results/` folder of the authors' repository, or from a file of `write_compact`.

    Raises:
      UserError: the file is none of those; reading raises one for runs that are missing.
    """
    if source.is_dir():
        return lambda runs: runs.read(source)
    found = read_json(source)
    if "runs" not in found:
        raise UserError(f"{source} has no runs: is it a file of figures.py --compact?")
    return lambda runs: _of_file(runs, found["runs"], source)


def _of_file(runs: Runs, by_name: dict[str, Any], file: Path) -> PublishedRuns:
    if runs.name not in by_name:
        raise UserError(f"{file} has no runs '{runs.name}'")
    return runs.of_values(**{key: np.array(rows, float) for key, rows in by_name[runs.name].items()})
