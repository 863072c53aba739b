"""Trials: runs of one setting, method, learning rate and seed; the order in which they are made, and their records."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from study.curve_files import read_curve_file, write_curve_file
from study.extents import Extent, texts
from study.rates import best_rate, next_rate


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
      overrides: of the config; a trial with others is one of another definition.
      curve, hours, noise: as in its file (`write_curve_file`).
    """

    trial: Trial
    overrides: tuple[str, ...]
    curve: Mapping[str, Sequence[float]]
    hours: float
    noise: Sequence[Mapping[str, Any]] = ()

    @property
    def score(self) -> float:
        """Mean accuracy over the evaluations after training began: learning rates are compared by it.

        Of a run that ended before its first step: the accuracy that it began with.
        """
        first, *after = self.curve["accuracy"]
        return sum(after) / len(after) if after else first


Records = Mapping[Trial, Record]


def overrides_of(extent: Extent, trial: Trial) -> tuple[str, ...]:
    """All values of the trial's config that differ from the setting's config file, the seed's own apart."""
    keys = extent.keys_of(trial.setting, trial.method) | {"optimizer.learning_rate": trial.rate}
    keys |= dict.fromkeys(extent.setting(trial.setting).seeded, trial.seed)
    return texts(keys)


# ---------------------------------------------------------------- the order of trials


def next_trials(extent: Extent, records: Records) -> list[Trial]:
    """The trials without a record that can be made now, in the study's order; none when all have one.

    They are of the first setting, wave and stage that is not done: learning rates are chosen before seeds are made.
    """
    return next(filter(None, ([t for t in s if t not in records] for s in _stages(extent, records))), [])


def _stages(extent: Extent, records: Records) -> Iterator[list[Trial]]:
    """The trials of each setting and wave: those that choose learning rates now, and then all seeds, seed by seed."""
    for setting in extent.settings:
        for wave in extent.waves:
            yield [t for method in wave for t in _choosing(extent, records, setting.name, method)]
            rates = {method: chosen_rate(extent, records, setting.name, method) for method in wave}
            yield [Trial(setting.name, m, rate, seed) for seed in extent.seeds for m, rate in rates.items()]


def _choosing(extent: Extent, records: Records, setting: str, method: str) -> Iterator[Trial]:
    """The trials that are still needed to choose a method's rate, of those that can be named now."""
    if extent.methods[method].rate_of:
        return
    rate = next_rate(tried(extent, records, setting, method), **_search(extent))
    if rate is not None:
        yield from (Trial(setting, method, _rounded(rate), seed) for seed in extent.tuning_seeds)


def chosen_rate(extent: Extent, records: Records, setting: str, method: str) -> float:
    """The best of the learning rates that were tried for a method, by mean score over the tuning seeds."""
    return best_rate(tried(extent, records, setting, extent.methods[method].rate_of or method))


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
    names = {setting.name for setting in extent.settings}
    records = {}
    for file in sorted(folder.glob("*.json")):
        found = read_curve_file(file)
        trial = _trial(file, found["run"])
        if trial.setting in names:
            overrides = overrides_of(extent, trial)
            found = read_curve_file(file, overrides)
            records[trial] = Record(trial, overrides, found["curve"], found["hours"], found.get("noise", ()))
    return records


def _trial(file: Path, run: Mapping[str, Any]) -> Trial:
    try:
        return Trial(**run)
    except TypeError as error:
        raise UserError(f"{file} is no record of a trial: {error}") from error


Make = Callable[[Sequence[tuple[Trial, tuple[str, ...]]]], Iterable[tuple[Trial, Path | str]]]
"""Makes the runs of trials with their overrides; yields each, when it is over, with its workdir or what went wrong."""


def make_all(extent: Extent, folder: Path, make: Make) -> dict[str, str]:
    """Makes every trial that has no record, all at once that can be named; stops after those among which one fails.

    folder: of the records, each of which is written as soon as its run is over.

    Returns:
      what went wrong, by name; empty if nothing did.
    """
    failed: dict[str, str] = {}
    while not failed and (trials := next_trials(extent, read_records(extent, folder))):
        overrides = {trial: overrides_of(extent, trial) for trial in trials}
        for trial, made in make(list(overrides.items())):
            if isinstance(made, str):
                failed[trial.name] = made
            else:
                file = folder / f"{trial.name}.json"
                write_curve_file(file, dataclasses.asdict(trial), overrides[trial], made, extent.metric)
    return failed
