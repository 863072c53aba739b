"""Trials: runs of one setting, method, learning rate and seed; the order in which they are made, and their records."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from study.curve_files import read_curve_file, write_curve_file
from study.rates import best_rate, next_rate
from study.smollm2 import METHODS, Extent, Setting


@dataclasses.dataclass(frozen=True, order=True)
class Trial:
    """One run."""

    setting: str
    method: str
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """The stem of its file."""
        return f"{self.setting}-{self.method}-rate{self.rate:.3g}-seed{self.seed}"


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """The committed part of a finished trial.

    Attributes:
      overrides: of the config, by which a trial of another definition is told.
      curve, hours: as in its file (`write_curve_file`).
    """

    trial: Trial
    overrides: tuple[str, ...]
    curve: Mapping[str, Sequence[float]]
    hours: float

    @property
    def score(self) -> float:
        """Mean accuracy over the evaluations after training began: learning rates are compared by it."""
        after = self.curve["accuracy"][1:]
        return sum(after) / len(after)


Records = Mapping[Trial, Record]


def overrides_of(setting: Setting, trial: Trial) -> tuple[str, ...]:
    """All values of the trial's config that differ from the setting's config file, the seed's apart."""
    keys = {**setting.keys, **METHODS[trial.method].keys, "optimizer.learning_rate": trial.rate}
    return tuple(f"{key}={value}" for key, value in keys.items())


# ---------------------------------------------------------------- the order of trials


def next_trial(extent: Extent, records: Records) -> Trial | None:
    """The first trial in the study's order that has no record; None when all have one."""
    return next((t for t in _in_order(extent, records) if t not in records), None)


def _in_order(extent: Extent, records: Records) -> Iterator[Trial]:
    """The trials of each setting and wave: first those that choose learning rates, then seed by seed."""
    for setting in extent.settings:
        for wave in extent.waves:
            for method in wave:
                yield from _choosing(extent, records, setting.name, method)
            for seed in extent.seeds:
                for method in wave:
                    yield Trial(setting.name, method, chosen_rate(extent, records, setting.name, method), seed)


def _choosing(extent: Extent, records: Records, setting: str, method: str) -> Iterator[Trial]:
    """The trials that are still needed to choose a method's rate, of those that can be named now."""
    if METHODS[method].rate_of:
        return
    rate = next_rate(tried(extent, records, setting, method), **_search(extent))
    if rate is not None:
        yield from (Trial(setting, method, _rounded(rate), seed) for seed in extent.tuning_seeds)


def chosen_rate(extent: Extent, records: Records, setting: str, method: str) -> float:
    """The best of the learning rates that were tried for a method, by mean score over the tuning seeds."""
    return best_rate(tried(extent, records, setting, METHODS[method].rate_of or method))


def tried(extent: Extent, records: Records, setting: str, method: str) -> dict[float, float]:
    """Mean scores by rate, of the rates that were tried with all tuning seeds."""
    found = [t for t in records if (t.setting, t.method) == (setting, method) and t.seed in extent.tuning_seeds]
    by_rate: dict[float, list[float]] = {}
    for trial in found:
        by_rate.setdefault(trial.rate, []).append(records[trial].score)
    return {r: sum(scores) / len(scores) for r, scores in by_rate.items() if len(scores) == len(extent.tuning_seeds)}


def _search(extent: Extent) -> dict[str, float]:
    return {
        "first": extent.first_rate,
        "factor": extent.factor,
        "lowest": extent.lowest_rate,
        "highest": extent.highest_rate,
    }


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


# ---------------------------------------------------------------- records


def read_records(extent: Extent, folder: Path) -> dict[Trial, Record]:
    """The records in a folder that belong to the extent's settings.

    Raises:
      UserError: a damaged file, or a record of a trial that is defined in another way today.
    """
    settings = {setting.name: setting for setting in extent.settings}
    records = {}
    for file in sorted(folder.glob("*.json")):
        found = read_curve_file(file)
        trial = _trial(file, found["run"])
        if trial.setting in settings:
            overrides = overrides_of(settings[trial.setting], trial)
            found = read_curve_file(file, overrides)
            records[trial] = Record(trial, overrides, found["curve"], found["hours"])
    return records


def _trial(file: Path, run: Mapping[str, Any]) -> Trial:
    try:
        return Trial(**run)
    except TypeError as error:
        raise UserError(f"{file} is no record of a trial: {error}") from error


def make_all(
    extent: Extent, folder: Path, make: Callable[[Setting, Trial, tuple[str, ...]], Path | str]
) -> dict[str, str]:
    """Makes every trial that has no record, one after the other; stops at the first that fails.

    Args:
      folder: of the records.
      make: makes a trial's run; returns its workdir, or what went wrong.

    Returns:
      what went wrong, by name; empty if nothing did.
    """
    settings = {setting.name: setting for setting in extent.settings}
    while trial := next_trial(extent, read_records(extent, folder)):
        overrides = overrides_of(settings[trial.setting], trial)
        made = make(settings[trial.setting], trial, overrides)
        if isinstance(made, str):
            return {trial.name: made}
        file = folder / f"{trial.name}.json"
        write_curve_file(file, dataclasses.asdict(trial), overrides, made, metric="greedy_accuracy")
    return {}
