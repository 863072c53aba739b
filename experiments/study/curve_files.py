"""Small files of finished runs, some kB each: learning curves without weights, from which all results can be made.

They are to be committed: a study goes on from those of another clone.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.analysis.curves import Evals
from pods_jax.analysis.runs import RunRecord, read_run
from pods_jax.errors import UserError
from pods_jax.io import make_folder, read_json, read_jsonl, write_atomic

COLUMNS = ("step", "rounds", "rollouts/generated", "rollouts/trained", "tokens/generated", "tokens/trained")
"""Totals that a file keeps of each evaluation, beside its accuracy."""
KEYS = ("run", "overrides", "curve", "hours")


def write_curve_file(
    file: Path, run: Mapping[str, Any], overrides: Sequence[str], workdir: Path, metric: str
) -> dict[str, Any]:
    """Writes the file of a finished run, and returns what is in it.

    Args:
      run: what names the run in the study.
      overrides: of its config; a run with others is one of another definition.
      metric: the accuracy in its evaluations.

    Returns:
      `KEYS`: "curve" has by name a value for each evaluation, "accuracy" and `COLUMNS`; "hours" are those of the run,
      evaluation and compilation included, on a machine that others may have used. Measured noise scales are in "noise".
    """
    evals = read_run(workdir).evals
    curve = {"accuracy": [e[metric] for e in evals]} | {key: [e[key] for e in evals] for key in COLUMNS}
    found = {"run": dict(run), "overrides": list(overrides), "curve": curve, "hours": run_hours(workdir)}
    if noise := read_jsonl(workdir / "noise_scale.jsonl"):
        found["noise"] = noise
    make_folder(file.parent, "folder")
    found = shortened(found)
    write_atomic(file, json.dumps(found).replace('], "', '],\n"').replace('}, "', '},\n"') + "\n")
    return found


def shortened(value: Any) -> Any:
    """The same with whole numbers as integers, and all others to six digits."""
    if isinstance(value, Mapping):
        return {key: shortened(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(each) for each in value]
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else float(f"{value:.6g}")
    return value


def run_hours(workdir: Path) -> float:
    """Hours of a finished run, evaluation and compilation included."""
    summary = read_json(workdir / "summary.json")
    return sum(summary.get(f"time/{part}_s", 0.0) for part in ("step", "eval", "compile")) / 3600  # some took no step


def read_curve_file(file: Path, overrides: Sequence[str] | None = None) -> dict[str, Any]:
    """The contents of a file that `write_curve_file` wrote.

    Raises:
      UserError: a damaged file, or one of a run with other overrides than those given.
    """
    found = read_json(file)
    if missing := [key for key in KEYS if key not in found]:
        raise UserError(f"{file} is no file of a run: it has no {', '.join(missing)}")
    if overrides is not None and list(overrides) != found["overrides"]:
        raise UserError(f"{file} was made by another definition of the study; delete it to make the run anew")
    return found


def evals_of(curve: Mapping[str, Sequence[float]]) -> Evals:
    """A curve as evaluations, one mapping each."""
    return [dict(zip(curve, values, strict=True)) for values in zip(*curve.values(), strict=True)]


def run_record(file: Path) -> RunRecord:
    """A file as the record of its run, without config and metrics."""
    return RunRecord({}, [], list(evals_of(read_curve_file(file)["curve"])), file, finished=True)
