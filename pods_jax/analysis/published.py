"""The PODS authors' published runs: the `results/` folder of github.com/YixuanEvenXu/pods (Apache-2.0).

Single-device runs are one JSON file each: checkpoint -> data set -> {ans_acc, for_acc, both_acc, lengths}, five
repeats of each. Checkpoints were saved at equal times, and are named by their step. Eight-device runs are columns of
two CSV files, accuracy and length, with their own times.
"""

import csv
import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pods_jax.analysis.curves import Curves, nearest
from pods_jax.errors import UserError
from pods_jax.model_files import read_json


@dataclasses.dataclass(frozen=True, eq=False)
class PublishedRuns:
    """One method's runs; x in the setting's unit of time, accuracies in [0, 1], lengths in tokens.

    Attributes:
      accuracy, length: by evaluation. Single-device curves begin with the base model, at time 0.
      steps: [S, E'] training steps done at each evaluation but the base model's.
      seconds_per_step: over the whole budget.
    """

    accuracy: Curves
    length: Curves
    steps: np.ndarray
    seconds_per_step: float


# ---------------------------------------------------------------- one device


@dataclasses.dataclass(frozen=True)
class SingleDevice:
    """Runs of one configuration on one L40S.

    Attributes:
      stem: the files are "{stem}-Run{i}.json".
      dataset: what is evaluated on; metric: "ans_acc", or "both_acc" (correct and well-formatted).
      every_hours: between checkpoints; count: how many are plotted.
      base: the file of the base model's evaluation.
    """

    stem: str
    dataset: str = "gsm8k"
    metric: str = "ans_acc"
    every_hours: float = 0.5
    count: int = 12
    base: str = "base-qwen"

    def read(self, folder: Path) -> PublishedRuns:
        """The runs in a results folder.

        Raises:
          UserError: no such runs, fewer checkpoints in one than are plotted, or a damaged file.
        """
        files = sorted(folder.glob(f"{self.stem}-Run*.json"), key=_run_number)
        if not files:
            raise UserError(f"{folder} has no {self.stem}-Run*.json: is it the results folder of the PODS repository?")
        runs = [self._checkpoints(file) for file in files]
        base = read_json(folder / f"{self.base}.json")[self.dataset]
        hours = self.every_hours * np.arange(self.count + 1)
        accuracy, length = (
            Curves(hours, np.array([[np.mean(r[key]) for r in (base, *run.values())] for run in runs]))
            for key in (self.metric, "lengths")
        )
        steps = np.array([list(run) for run in runs])
        return PublishedRuns(accuracy, length, steps, float(np.mean(3600 * hours[-1] / steps[:, -1])))

    def _checkpoints(self, file: Path) -> dict[int, Mapping]:
        """Evaluations on the data set by step, the first `count` of them."""
        record = {int(name.rpartition("-")[2]): scores for name, scores in read_json(file).items()}
        if len(record) < self.count:
            raise UserError(f"{file} has {len(record)} checkpoints, and {self.count} are plotted")
        return {step: record[step][self.dataset] for step in sorted(record)[: self.count]}


def _run_number(file: Path) -> int:
    return int(re.search(r"Run(\d+)$", file.stem)[1])


# ---------------------------------------------------------------- eight devices


@dataclasses.dataclass(frozen=True)
class EightDevices:
    """Runs of one configuration on eight devices.

    Attributes:
      machine: the files are "{machine}-acc.csv" and "{machine}-length.csv".
      accumulation: micro-batches a global step, by which a run's name and its count of log calls are known.
    """

    machine: str
    accumulation: int

    def read(self, folder: Path) -> PublishedRuns:
        """The runs that both files hold, at the evaluation nearest to each of 0, 2, ..., 30 minutes.

        One 7B baseline run has accuracies only; without it the published curve comes out. Seconds a step are 30
        minutes over the mean of the steps at that time, where a step is `accumulation` of the log calls.

        Raises:
          UserError: no such files or runs.
        """
        accuracy, length = (_read_columns(folder / f"{self.machine}-{name}.csv") for name in ("acc", "length"))
        names = [n for n in accuracy if n in length and n.endswith(f"-ga{self.accumulation}")]
        if not names:
            raise UserError(f"{folder}/{self.machine}-acc.csv has no runs of -ga{self.accumulation}")
        minutes = np.arange(0.0, 31.0, 2.0)

        def on_grid(columns: dict, key: str) -> np.ndarray:
            return np.array([nearest(*columns[name][key], minutes) for name in names])

        steps = on_grid(accuracy, "step") / self.accumulation
        return PublishedRuns(
            Curves(minutes, on_grid(accuracy, "value")),
            Curves(minutes, on_grid(length, "value")),
            steps,
            float(60 * minutes[-1] / steps[:, -1].mean()),
        )


def _read_columns(file: Path) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """By run and by "step" or "value": minutes and values [N] of the rows where there is one."""
    if not file.is_file():
        raise UserError(f"{file.parent} has no {file.name}")
    with open(file, newline="") as f:
        rows = list(csv.DictReader(f))
    runs: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for column in rows[0]:
        name, dash, quantity = column.partition(" - ")
        if dash and not quantity.endswith(("__MIN", "__MAX")):
            points = [(float(r["eval/time"]) / 60, float(r[column])) for r in rows if r[column]]
            times, values = map(np.array, zip(*points, strict=True))
            runs.setdefault(name, {})["step" if quantity == "_step" else "value"] = (times, values)
    return runs
