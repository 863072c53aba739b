"""Stages of the map of regimes: accepted warm starts, step costs, and the trials that they define."""

import functools
from pathlib import Path

from pods_jax.config.load import load_config
from pods_jax.errors import UserError
from pods_jax.io import make_folder
from pods_jax.training import Reporter, evaluate_model
from study.cost_files import measure_once, read_costs
from study.extents import Extent, texts
from study.regime import Regime, Task, costs_of
from study.step_costs import Definitions, summary_of_steps
from study.trial_runs import make_trials
from study.warm_starts import accepted


def make_regime(
    regime: Regime, workdir: Path, records: Path, workers: int, num_seeds: int | None = None
) -> dict[str, str]:
    """Makes all that has no record; returns the problems of the runs that failed, by name.

    num_seeds: only the first seeds of those that are reported; None: all.
    """
    failed = {}
    make_folder(records, "folder of records")
    measure = functools.partial(summary_of_steps, rounds=regime.cost_rounds)
    for task in regime.tasks:
        _seeds(regime, task, records, measuring=True)
        measure_once(_cost_file(task, records), _timed(regime, task, records), measure)
    for task in regime.tasks:
        extent = extent_of(regime, task, records).cut(num_seeds)
        failed |= make_trials(extent, workdir, trial_folder(task, records), workers)
    return failed


def extent_of(regime: Regime, task: Task, records: Path) -> Extent:
    """The trials of a task, given the records of its warm starts and step costs.

    Raises:
      UserError: these are not there.
    """
    return regime.extent(task, _seeds(regime, task, records), step_seconds(regime, task, records))


def is_ready(task: Task, records: Path) -> bool:
    """True once a task's step costs are there, without which no run is defined."""
    return _cost_file(task, records).is_file()


def step_seconds(regime: Regime, task: Task, records: Path) -> dict[str, float]:
    """Seconds of a step, by `regime.cost_name`.

    Raises:
      UserError: they are not there, or were measured with another definition of the study.
    """
    costs = read_costs(_cost_file(task, records), _timed(regime, task, records))
    return {name: cost["step"] for name, cost in costs["seconds"].items()}


def trial_folder(task: Task, records: Path) -> Path:
    """The folder of a task's records."""
    return records / task.name


def _seeds(regime: Regime, task: Task, records: Path, measuring: bool = False) -> list[int]:
    """Seeds of accepted warm starts. measuring: measures those that the file lacks, which are a UserError otherwise."""

    def measure(seed: int) -> float:
        if not measuring:
            raise UserError(f"{file} lacks warm starts: run --part regime first")
        config = load_config(task.spec, texts(task.keys | {"warm_start.seed": seed}))
        accuracy = evaluate_model(config, Reporter(quiet=True))["accuracy"]
        print(f"warm-up  {task.name}, seed {seed}: accuracy {accuracy:.1%}", flush=True)
        return accuracy

    file = records / f"{task.name}_warm_starts.json"
    count = regime.num_tuning_seeds + regime.num_seeds
    return accepted(file, " ".join((task.spec, *texts(task.keys))), task.accepted, count, measure)


def _timed(regime: Regime, task: Task, records: Path) -> Definitions:
    """The configs whose steps are timed: every method and P, from the first accepted warm start."""
    [seed, *_] = _seeds(regime, task, records)
    return {name: (task.spec, *texts(keys | {"warm_start.seed": seed})) for name, keys in costs_of(task)}


def _cost_file(task: Task, records: Path) -> Path:
    return records / f"{task.name}_step_costs.json"
