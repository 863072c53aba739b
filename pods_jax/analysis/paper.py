"""Figures and numbers of the PODS authors' published runs, for `experiments/figures.py --published`.

They are in the `results/` folder of github.com/YixuanEvenXu/pods (Apache-2.0). Single-device runs are one JSON
file each: checkpoint -> data set -> {ans_acc, for_acc, both_acc, lengths}, five repeats of each. Checkpoints were saved
at equal times, and are named by their step. Eight-device runs are columns of two CSV files, accuracy and length, with
their own times.
"""

import csv
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.analysis.curves import Curves, SpeedUp, first_reach, nearest_values, speed_up
from pods_jax.analysis.figures import Line, Panel, accuracy_and_cost, lengths_panel, small_multiples
from pods_jax.analysis.style import LOOKS, SHADES, Look
from pods_jax.errors import UserError
from pods_jax.io import read_json, refuse_unwritable


@dataclasses.dataclass(frozen=True, eq=False)
class PublishedRuns:
    """One method's runs; x in the setting's unit of time, accuracies in [0, 1], lengths in tokens.

    Attributes:
      accuracy, length: curves over evaluations. Those of single-device runs begin with the base model, at time 0.
      steps: [S, E'] training steps done at each evaluation, the base model's left out.
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
      dataset: the data set of the evaluation.
      metric: "ans_acc", or "both_acc" (correct and well-formatted).
      every_hours: time between checkpoints.
      count: number of checkpoints that are plotted.
      base: the file of the base model's evaluation.
    """

    stem: str
    dataset: str = "gsm8k"
    metric: str = "ans_acc"
    every_hours: float = 0.5
    count: int = 12
    base: str = "base-qwen"

    @property
    def name(self) -> str:
        """A name that no other runs have."""
        return f"{self.stem} {self.dataset} {self.metric}"

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
        evaluations = [[base, *run.values()] for run in runs]
        accuracy, length = (np.array([_means(run, key) for run in evaluations]) for key in (self.metric, "lengths"))
        return self.of_values(accuracy, length, np.array([list(run) for run in runs]))

    def of_values(self, accuracy: np.ndarray, length: np.ndarray, steps: np.ndarray) -> PublishedRuns:
        """The runs, given what `PublishedRuns` has of them: [S, count + 1] and [S, count]."""
        hours = self.every_hours * np.arange(self.count + 1)
        seconds_per_step = float(np.mean(3600 * hours[-1] / steps[:, -1]))
        return PublishedRuns(Curves(hours, accuracy), Curves(hours, length), steps, seconds_per_step)

    def _checkpoints(self, file: Path) -> dict[int, Mapping]:
        """Evaluations on the data set by step, the first `count` of them."""
        record = {int(name.rpartition("-")[2]): scores for name, scores in read_json(file).items()}
        if len(record) < self.count:
            raise UserError(f"{file} has {len(record)} checkpoints, and {self.count} are plotted")
        return {step: record[step][self.dataset] for step in sorted(record)[: self.count]}


def _means(evaluations: Sequence[Mapping[str, list[float]]], key: str) -> list[float]:
    """Means over the repeats of each evaluation."""
    return [float(np.mean(evaluation[key])) for evaluation in evaluations]


def _run_number(file: Path) -> int:
    return int(re.search(r"Run(\d+)$", file.stem)[1])


# ---------------------------------------------------------------- eight devices


@dataclasses.dataclass(frozen=True)
class EightDevices:
    """Runs of one configuration on eight devices.

    Attributes:
      machine: the files are "{machine}-acc.csv" and "{machine}-length.csv".
      accumulation: micro-batches a global step; it is in a run's name, and the number of its log calls a step.
    """

    machine: str
    accumulation: int

    @property
    def name(self) -> str:
        """A name that no other runs have."""
        return f"{self.machine}-ga{self.accumulation}"

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

        def on_grid(columns: dict, key: str) -> np.ndarray:
            return np.array([nearest_values(*columns[name][key], _MINUTES) for name in names])

        steps = on_grid(accuracy, "step") / self.accumulation
        return self.of_values(on_grid(accuracy, "value"), on_grid(length, "value"), steps)

    def of_values(self, accuracy: np.ndarray, length: np.ndarray, steps: np.ndarray) -> PublishedRuns:
        """The runs, given what `PublishedRuns` has of them, [S, 16] each."""
        seconds_per_step = float(60 * _MINUTES[-1] / steps[:, -1].mean())
        return PublishedRuns(Curves(_MINUTES, accuracy), Curves(_MINUTES, length), steps, seconds_per_step)


_MINUTES = np.arange(0.0, 31.0, 2.0)


def _read_columns(file: Path) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Minutes and values [N] by run, and by "step" or "value", of the rows that have them."""
    if not file.is_file():
        raise UserError(f"{file.parent} has no {file.name}")
    with open(file, newline="") as f:
        rows = list(csv.DictReader(f))
    runs: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for column in rows[0]:
        name, dash, quantity = column.partition(" - ")
        if dash and not quantity.endswith(("__MIN", "__MAX")):
            filled = [row for row in rows if row[column]]
            minutes = np.array([float(row["eval/time"]) / 60 for row in filled])
            values = np.array([float(row[column]) for row in filled])
            runs.setdefault(name, {})["step" if quantity == "_step" else "value"] = (minutes, values)
    return runs


# ---------------------------------------------------------------- figures


Runs = SingleDevice | EightDevices


@dataclasses.dataclass(frozen=True)
class PaperSetting:
    """One of the paper's main comparisons: a baseline and PODS on equal hardware for equal time."""

    title: str
    baseline_look: Look
    baseline: Runs
    pods: Runs
    x_label: str

    @property
    def unit(self) -> str:
        """Unit of time: "h" or "min"."""
        return "h" if isinstance(self.pods, SingleDevice) else "min"


_L40S, _H100, _A100 = (f"training time on {m}" for m in ("one L40S (h)", "8 H100 (min)", "8 A100 (min)"))
_LLAMA = SingleDevice("Instruct-Llama-512-16-16-0.04", "gsm8k", "both_acc", 1 / 6, 9, "base-llama")
_LLAMA_PODS = dataclasses.replace(_LLAMA, stem="Instruct-Llama-512-64-16-0.04")
_GRPO, _GRPO_GA, _PODS = (LOOKS[m] for m in ("grpo", "grpo_ga", "pods"))

SETTINGS = {
    "gsm8k_main": PaperSetting(
        "GSM8K, Qwen2.5-3B, LoRA", _GRPO, SingleDevice("Instruct-GSM8K-512-16-16"),
        SingleDevice("Instruct-GSM8K-512-64-16"), _L40S),
    "math_main": PaperSetting(
        "MATH, Qwen2.5-3B, LoRA", _GRPO, SingleDevice("Instruct-MATH-NF-512-8-8", "math500"),
        SingleDevice("Instruct-MATH-NF-512-32-8", "math500"), _L40S),
    "llama_main": PaperSetting("GSM8K, Llama-3.2-3B, LoRA", _GRPO, _LLAMA, _LLAMA_PODS, _L40S),
    "h100s_main": PaperSetting(
        "GSM8K, Qwen2.5-3B, full", _GRPO_GA, EightDevices("h100s", 16), EightDevices("h100s", 4), _H100),
    "a100s_main": PaperSetting(
        "GSM8K, Qwen2.5-7B, full", _GRPO_GA, EightDevices("a100s", 16), EightDevices("a100s", 4), _A100),
}  # fmt: skip


def _sized(name: str, size: int, shade: int, marker: str) -> Look:
    return Look(f"{name} = {size}", SHADES[shade], marker)


def _default(name: str, size: int) -> Look:
    return dataclasses.replace(_PODS, label=f"{name} = {size} (PODS)")


ABLATIONS: dict[str, list[tuple[Look, SingleDevice]]] = {
    "gsm8k_n_scaling": [
        (dataclasses.replace(_GRPO, label="n = 16 (GRPO)"), SingleDevice("Instruct-GSM8K-512-16-16")),
        (_sized("n", 32, 0, "v"), SingleDevice("Instruct-GSM8K-512-32-16")),
        (_default("n", 64), SingleDevice("Instruct-GSM8K-512-64-16")),
        (_sized("n", 128, 1, "^"), SingleDevice("Instruct-GSM8K-512-128-16")),
        (_sized("n", 256, 2, "D"), SingleDevice("Instruct-GSM8K-512-256-16")),
    ],
    "gsm8k_m_scaling": [
        (_default("m", 16), SingleDevice("Instruct-GSM8K-512-64-16")),
        (_sized("m", 8, 0, "v"), SingleDevice("Instruct-GSM8K-512-64-8")),
        (_sized("m", 4, 1, "^"), SingleDevice("Instruct-GSM8K-512-64-4")),
        (_sized("m", 2, 2, "D"), SingleDevice("Instruct-GSM8K-512-64-2")),
    ],
    "down_sampling_rule": [
        (dataclasses.replace(_PODS, label="max-variance"), SingleDevice("Instruct-GSM8K-512-64-16")),
        (LOOKS["max_reward"], SingleDevice("Instruct-GSM8K-MaxR-512-64-16")),
        (LOOKS["random"], SingleDevice("Instruct-GSM8K-Rand-512-64-16")),
    ],
}
"""Curves that are compared on GSM8K with Qwen2.5-3B on one L40S, by figure."""

MULTI_DEVICE_CAUTION = (
    "Caution: the selection loop of the released multi-device code overwrites its own sort order and freezes at the "
    "first improvement, so that it keeps far less variance than the paper's rule. Whether these runs used that "
    "revision is not known. Seconds per step come from counts of log calls and are approximate."
)


Read = Callable[[Runs], PublishedRuns]
"""A reader of runs: from the authors' logs, or from numbers made of them (`pods_jax.analysis.published_file`)."""


def all_runs() -> list[Runs]:
    """Everything that the figures and their cautions are made of, each once."""
    main = [runs for s in SETTINGS.values() for runs in (s.baseline, s.pods)]
    ablations = [runs for rows in ABLATIONS.values() for _, runs in rows]
    return list(dict.fromkeys([*main, *map(_by_answer, (_LLAMA, _LLAMA_PODS)), *ablations]))


def draw(read: Read, out: Path) -> dict[str, Any]:
    """Draws every figure as `out/NAME.png`. Returns the numbers: by setting, and by ablation and curve.

    out: made if it is not there.

    Raises:
      UserError: runs that a figure needs are missing, a file is damaged, or `out` cannot be a folder.
    """
    refuse_unwritable(out, "--out")
    out.mkdir(parents=True, exist_ok=True)
    main = {name: (read(s.baseline), read(s.pods)) for name, s in SETTINGS.items()}
    ablations = {n: [(look, read(runs)) for look, runs in rows] for n, rows in ABLATIONS.items()}
    numbers = {name: {"unit": SETTINGS[name].unit} | setting_numbers(*runs) for name, runs in main.items()}
    cautions = {"llama_main": llama_caution(read)} | dict.fromkeys(("h100s_main", "a100s_main"), MULTI_DEVICE_CAUTION)
    for name, runs in main.items():
        note = f"{SETTINGS[name].title}: {_in_words(numbers[name])} {cautions.get(name, '')}"
        accuracy_and_cost(out / f"{name}.png", main_lines(name, runs), accuracy_panel(name, numbers[name]), note)
    for name, caution in cautions.items():
        numbers[name]["caution"] = caution
    for name, rows in ablations.items():
        note = f"GSM8K, Qwen2.5-3B, LoRA, {len(rows[0][1].accuracy.y)} runs each; bands are Student's 95 % intervals."
        accuracy_and_cost(out / f"{name}.png", [_line(*row) for row in rows], Panel(_L40S, fit_from=0.25), note)
    _draw_lengths(out / "completion_lengths.png", main, ablations["down_sampling_rule"])
    return {
        "settings": numbers,
        "ablations": {n: {look.label: _run_numbers(r) for look, r in rows} for n, rows in ablations.items()},
        "figures": sorted(str(out / f"{name}.png") for name in (*main, *ablations, "completion_lengths")),
    }


def llama_caution(read: Read) -> str:
    """The caution that the Llama runs have another metric, with the numbers of the usual one."""
    best, last = _best_and_last_percent(read(_by_answer(_LLAMA)))
    pods_best, pods_last = _best_and_last_percent(read(_by_answer(_LLAMA_PODS)))
    return (
        "Caution: here, and only here, an answer counts if it is right and well-formatted. By the answer only, as in "
        f"the other settings, GRPO's best and last accuracies are {best:.1f} % and {last:.1f} %, PODS' "
        f"{pods_best:.1f} % and {pods_last:.1f} %: the speed-up is that of learning the format."
    )


def _by_answer(runs: SingleDevice) -> SingleDevice:
    """The same runs, scored by the answer only."""
    return dataclasses.replace(runs, metric="ans_acc")


def _best_and_last_percent(runs: PublishedRuns) -> tuple[float, float]:
    mean = runs.accuracy.mean
    return 100 * mean.max(), 100 * mean[-1]


def setting_numbers(baseline: PublishedRuns, pods: PublishedRuns) -> dict[str, Any]:
    """The speed-up with its interval over runs, and the `_run_numbers` of both methods."""
    result: SpeedUp = speed_up(baseline.accuracy, pods.accuracy)
    return dataclasses.asdict(result) | {"runs": {"baseline": _run_numbers(baseline), "pods": _run_numbers(pods)}}


def _run_numbers(runs: PublishedRuns) -> dict[str, int | float]:
    """Best and last mean accuracy with its half-width, the last mean length, seconds and number of steps."""
    mean = runs.accuracy.mean
    half = runs.accuracy.half_width
    return {
        "num_runs": len(runs.accuracy.y),
        "peak": float(mean.max()),
        "peak_at": first_reach(runs.accuracy, float(mean.max())),
        "last": float(mean[-1]),
        "last_half_width": float(half[-1]),
        "last_length": float(runs.length.mean[-1]),
        "seconds_per_step": runs.seconds_per_step,
        "steps": float(runs.steps[:, -1].mean()),
    }


def _in_words(numbers: Mapping[str, Any]) -> str:
    counts = " and ".join(str(numbers["runs"][k]["num_runs"]) for k in ("baseline", "pods"))
    return (
        f"{100 * numbers['threshold']:.2f} % (99 % of the baseline's best, dotted) is reached "
        f"{numbers['ratio']:.2f}x as fast (bootstrap over runs: {numbers['low']:.2f} to {numbers['high']:.2f}); "
        f"bands are Student's 95 % intervals over {counts} runs."
    )


def _line(look: Look, runs: PublishedRuns) -> Line:
    return Line(look, runs.accuracy, {"step": runs.seconds_per_step})


def main_lines(name: str, runs: tuple[PublishedRuns, PublishedRuns]) -> list[Line]:
    return [_line(look, r) for look, r in zip((SETTINGS[name].baseline_look, _PODS), runs, strict=True)]


def accuracy_panel(name: str, numbers: Mapping[str, Any]) -> Panel:
    runs = SETTINGS[name].pods
    fit_from = runs.every_hours / 2 if isinstance(runs, SingleDevice) else 0.0
    y_label = "right and well-formatted (%)" if name == "llama_main" else "test accuracy (%)"
    return Panel(SETTINGS[name].x_label, y_label, fit_from=fit_from, thresholds=(numbers["threshold"],))


def _draw_lengths(path: Path, main: Mapping[str, tuple], rules: list[tuple[Look, PublishedRuns]]) -> None:
    def lines(rows):
        return [Line(look, runs.length, {}) for look, runs in rows]

    panels = {
        SETTINGS[name].title: (
            lines(zip((SETTINGS[name].baseline_look, _PODS), runs, strict=True)),
            lengths_panel(SETTINGS[name].x_label),
        )
        for name, runs in main.items()
    }
    panels["rules, n = 64, m = 16"] = (lines(rules), lengths_panel(_L40S))
    small_multiples(
        path, panels, columns=2, note="Mean lengths of test completions, with Student's 95 % intervals over runs."
    )
