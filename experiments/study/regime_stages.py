"""Stages of the map of regimes: accepted warm starts, step costs, and the trials that they define."""

import json
from collections.abc import Mapping
from pathlib import Path

from pods_jax.config.load import load_config
from pods_jax.errors import UserError
from pods_jax.io import make_folder, read_json, write_atomic
from pods_jax.training import Reporter, evaluate_model
from study.extents import Extent
from study.regime import Regime, Task, costs_of
from study.step_costs import summary_of_steps
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
    for task in regime.tasks:
        _seeds(regime, task, records, measuring=True)
        _measure_costs(regime, task, records)
    for task in regime.tasks:
        extent = extent_of(regime, task, records).cut(num_seeds)
        failed |= make_trials(extent, workdir, trial_folder(task, records), workers)
    return failed


def extent_of(regime: Regime, task: Task, records: Path) -> Extent:
    """The trials of a task, given the records of its warm starts and step costs.

    Raises:
      UserError: these are not there.
    """
    return regime.extent(task, _seeds(regime, task, records), step_seconds(task, records))


def is_ready(task: Task, records: Path) -> bool:
    """True once a task's step costs are there, without which no run is defined."""
    return _cost_file(task, records).is_file()


def step_seconds(task: Task, records: Path) -> dict[str, float]:
    """Seconds of a step, by `regime.cost_name`."""
    return {name: cost["step"] for name, cost in read_json(_cost_file(task, records))["seconds"].items()}


def trial_folder(task: Task, records: Path) -> Path:
    """The folder of a task's records."""
    return records / task.name


def _seeds(regime: Regime, task: Task, records: Path, measuring: bool = False) -> list[int]:
    """Seeds of accepted warm starts. measuring: measures those that the file lacks, which are a UserError otherwise."""

    def measure(seed: int) -> float:
        if not measuring:
            raise UserError(f"{file} lacks warm starts: run --part regime first")
        config = load_config(task.spec, _texts(task.keys | {"warm_start.seed": seed}))
        accuracy = evaluate_model(config, Reporter(quiet=True))["accuracy"]
        print(f"warm-up  {task.name}, seed {seed}: accuracy {accuracy:.1%}", flush=True)
        return accuracy

    file = records / f"{task.name}_warm_starts.json"
    count = regime.num_tuning_seeds + regime.num_seeds
    return accepted(file, " ".join((task.spec, *_texts(task.keys))), task.accepted, count, measure)


def _measure_costs(regime: Regime, task: Task, records: Path) -> None:
    """Writes the seconds of a step of every method and P, in turns on one core, unless they are there."""
    file = _cost_file(task, records)
    if file.is_file():
        return
    [seed, *_] = _seeds(regime, task, records)
    configs = {name: load_config(task.spec, _texts(keys | {"warm_start.seed": seed})) for name, keys in costs_of(task)}
    print(f"costs    {task.name}: {len(configs)} methods and sizes", flush=True)
    costs = summary_of_steps(configs, regime.cost_rounds, lambda step: None)
    write_atomic(file, json.dumps(costs, indent=1) + "\n")


def _cost_file(task: Task, records: Path) -> Path:
    return records / f"{task.name}_step_costs.json"


def _texts(keys: Mapping[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in keys.items()]
