"""The workdirs in a folder: those with something to draw, and what the others lack."""

from collections.abc import Iterator
from pathlib import Path

from pods_jax.analysis.runs import RunRecord, read_run
from pods_jax.model_files import read_json

_LOGS = ("metrics.jsonl", "eval.jsonl")
_SECTIONS = {"rollout", "selection", "allocation"}


def find_runs(folder: Path) -> tuple[list[RunRecord], list[str]]:
    """The runs of all workdirs in a folder, at any depth, and a line for each workdir that is left out.

    Raises:
      UserError: a damaged file.
    """
    runs, left_out = [], []
    for workdir in _workdirs(folder):
        run = read_run(workdir) if _has_config(workdir) else None
        if lacks := _lacks(run):
            left_out.append(f"{workdir} is left out: it has no {lacks}")
        else:
            runs.append(run)
    return runs, left_out


def _workdirs(folder: Path) -> Iterator[Path]:
    """Folders with a run's config or logs; a config.json alone may be a pretrained model's."""
    files = {file.parent for name in ("config.json", *_LOGS) for file in folder.rglob(name)}
    return (w for w in sorted(files) if _has_config(w) or any((w / log).is_file() for log in _LOGS))


def _has_config(workdir: Path) -> bool:
    file = workdir / "config.json"
    return file.is_file() and read_json(file).keys() >= _SECTIONS


def _lacks(run: RunRecord | None) -> str:
    if run is None:
        return "config.json of a run"
    return " and no ".join(name for name, found in (("step", run.metrics), ("evaluation", run.evals)) if not found)
