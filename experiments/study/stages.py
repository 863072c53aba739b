"""Stages of the study: runs are made, step costs measured, and results written; each goes on where it was stopped."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from pods_jax.io import finite, read_json
from pods_jax.training import sweep
from study import (
    document,
    plots,
    regime_stages,
    regime_tables,
    smollm2,
    smollm2_stages,
    tables,
    trial_plots,
    trial_tables,
    trials,
)
from study.cost_files import measure_once, read_costs
from study.curve_files import read_curve_file, write_curve_file
from study.definition import ALLOCATION, LEARNING, VARIANTS, Study
from study.extents import Extent
from study.regime import Regime
from study.step_costs import Definitions, measure
from study.tables import Numbers
from study.workers import Workers

COSTS = "costs"
"""Name of the stage that measures step costs, beside the names of the study's parts."""
RUNS = "runs"
"""Folder, beside the results, of the small files of finished runs."""
SMOLLM2 = "smollm2"
"""Name of the part with a pretrained language model."""
REGIME = "regime"
"""Name of the part that maps regimes."""


def make_runs(
    study: Study, parts: Iterable[str], workdir: Path, out: Path, workers: int, num_seeds: int | None
) -> dict[str, str]:
    """Makes the runs of some parts that have no file in OUT/runs, and their files.

    Returns:
      the problem of each run that failed, by name.

    Args:
      workers: runs at a time, each on its share of the cores.
      num_seeds: only the first seeds of each part; None: all.
    """
    runs = [run for part in parts for run in runs_of(study, part, workdir, num_seeds)]
    runs = [run for run in runs if not _has_file(run, out)]
    if not runs:
        return {}
    sweep.check([run for run in runs if run.state() != "finished"])
    failed = {}
    with Workers(workers) as pool:
        for run, problem in sweep.make(pool.run, runs):
            if problem:
                failed[run.name] = problem
            else:
                named = {"variant": run.group, "seed": run.seed}
                write_curve_file(_file_of(run, out), named, run.overrides, run.workdir, metric="accuracy")
    return failed


def _file_of(run: sweep.SweepRun, out: Path) -> Path:
    return out / RUNS / run.group / f"{run.workdir.name}.json"


def _has_file(run: sweep.SweepRun, out: Path) -> bool:
    """True for a run whose file is there; UserError if that is one of another definition."""
    file = _file_of(run, out)
    return file.is_file() and bool(read_curve_file(file, run.overrides))


def runs_of(study: Study, part: str, workdir: Path, num_seeds: int | None = None) -> list[sweep.SweepRun]:
    """All runs of a part, or those of its first seeds, in WORKDIR/VARIANT/seed=N.

    They are in the order of seeds: a part that is cut short has as many seeds of each variant.
    """
    chosen = study.parts[part]
    return [_run(study, name, seed, workdir) for seed in chosen.seeds[:num_seeds] for name in chosen.variants]


def _run(study: Study, name: str, seed: int, workdir: Path) -> sweep.SweepRun:
    overrides = (*study.overrides_of(name), f"warm_start.seed={seed}")
    return sweep.SweepRun(VARIANTS[name].spec, overrides, seed, workdir / name / f"seed={seed}")


def measure_costs(study: Study, workdir: Path) -> None:
    """Writes WORKDIR/NAME.json for each of the study's step costs, unless it is there."""

    def measured(definitions: Definitions) -> dict[str, Any]:
        return measure(study, list(definitions), lambda step: print(f"costs    round {step}", flush=True))

    for name, variants in study.costs.items():
        measure_once(workdir / f"{name}.json", _timed(study, variants), measured)


def _timed(study: Study, variants: Sequence[str]) -> Definitions:
    return {name: (VARIANTS[name].spec, *study.overrides_of(name)) for name in variants}


def write_results(
    study: Study,
    extent: Extent,
    regime: Regime,
    parts: Sequence[str],
    workdir: Path,
    records: Mapping[str, Path],
    out: Path,
    document_file: Path | None,
) -> dict[str, Numbers]:
    """Writes a JSON file and a figure for each table of the parts. records: folders of the trials' parts by name.

    The document, if there is one, gets the tables of all results in the folder `out`. See `write_from_numbers`.

    Raises:
      UserError: runs or step costs are missing, or the document has no place for a table.
    """
    results = {}
    names = [table for part in parts if part in study.parts for table in study.parts[part].tables]
    costs = _read_costs(study, names, COSTS in parts, (workdir, out))
    runs = out / RUNS
    for name in names:
        if name in LEARNING:
            step_costs = costs[LEARNING[name].costs]
            results[name] = tables.learning_table(LEARNING[name], runs, step_costs)
            plots.draw_learning_curves(name, runs, step_costs, out)
        else:
            results[name] = tables.allocation_table(ALLOCATION[name], runs)
            plots.draw_allocation_curves(name, runs, out)
    for name, measured in costs.items():
        results[name] = tables.cost_table(measured)
    if SMOLLM2 in parts:
        found = trials.read_records(extent, records[SMOLLM2])
        step_costs = smollm2_stages.step_costs(extent, records[SMOLLM2])
        results[SMOLLM2] = trial_tables.trial_table(extent, found, step_costs)
        trial_plots.draw_trials(extent, found, step_costs, smollm2.COMPARED, out)
    if REGIME in parts:
        results[REGIME] = regime_results(regime, records[REGIME])
    for name, numbers in results.items():
        (out / f"{name}.json").write_text(json.dumps(finite(numbers), indent=1) + "\n")
    blocks = write_from_numbers(out, document_file)
    print("\n\n".join(f"## {name}\n\n{blocks[name]}" for name in results))
    print(f"tables and figures in {out}")
    return results


def regime_results(regime: Regime, records: Path) -> Numbers:
    """The tables of all tasks' settings that have reported runs, by setting."""
    results = {}
    for task in regime.tasks:
        if regime_stages.is_ready(task, records):
            extent = regime_stages.extent_of(regime, task, records)
            found = trials.read_records(extent, regime_stages.trial_folder(task, records))
            results |= regime_tables.regime_table(extent, found, regime_stages.step_seconds(regime, task, records))
    return results


def write_from_numbers(out: Path, document_file: Path | None) -> dict[str, str]:
    """Writes what follows from the JSON files of a folder: figures without curves, and the blocks of the document.

    Returns:
      the blocks by name.

    Raises:
      UserError: the folder has no numbers, or the document has no place for one of them.
    """
    results = read_results(out)
    if not results:
        raise UserError(f"{out} has no numbers of the study: JSON files such as main.json")
    for name, numbers in results.items():
        plots.draw_numbers(name, numbers, out)
    blocks = document.blocks_of(results)
    if "answer" in blocks:
        plots.draw_answers(results, out)
    if document_file:
        document.fill(document_file, blocks)
    return blocks


def read_results(folder: Path) -> dict[str, Numbers]:
    """All results that were written to a folder, by name."""
    return {file.stem: read_json(file) for file in sorted(folder.glob("*.json"))}


def _read_costs(study: Study, names: Sequence[str], everything: bool, folders: Sequence[Path]) -> dict[str, Numbers]:
    """The step costs that the named tables need, or all of the study's, each from the first folder that has it.

    Raises:
      UserError: they are not there, or were measured with another definition of the study.
    """
    needed = list(study.costs) if everything else dict.fromkeys(LEARNING[n].costs for n in names if n in LEARNING)
    return {name: read_costs(_first_file(f"{name}.json", folders), _timed(study, study.costs[name])) for name in needed}


def _first_file(name: str, folders: Sequence[Path]) -> Path:
    files = [folder / name for folder in folders]
    if found := next(filter(Path.is_file, files), None):
        return found
    raise UserError(f"{files[0]} is not there: run --part costs first, on a quiet machine")
