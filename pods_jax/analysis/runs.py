"""Records of runs, read from their workdirs."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pods_jax.io import read_json, read_jsonl


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A workdir's config and its log lines, in order of steps.

    finished: there is a summary.json, which is written last.
    """

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    evals: list[dict[str, Any]]
    workdir: Path
    finished: bool

    @property
    def title(self) -> str:
        c = self.config
        return (
            f"{c['data']['name']}: {c['selection']['rule']}, n = {c['rollout']['num_generations']}, "
            f"m = {c['selection']['num_kept']}, seed {c['seed']}"
        )


def read_run(workdir: str | Path) -> RunRecord:
    """The records of a workdir, also while its run goes on.

    Raises:
      UserError: no config, or a damaged file.
    """
    workdir = Path(workdir).expanduser()
    return RunRecord(
        config=read_json(workdir / "config.json"),
        metrics=read_jsonl(workdir / "metrics.jsonl"),
        evals=read_jsonl(workdir / "eval.jsonl"),
        workdir=workdir,
        finished=(workdir / "summary.json").is_file(),
    )


# ---------------------------------------------------------------- the workdirs in a folder


_LOGS = ("metrics.jsonl", "eval.jsonl")
_SECTIONS = {"rollout", "selection", "allocation"}


def find_runs(folder: str | Path) -> tuple[list[RunRecord], list[str]]:
    """The runs of all workdirs in a folder, at any depth, and a line for each workdir that is left out.

    Raises:
      UserError: a damaged file.
    """
    runs = []
    left_out = []
    for workdir in _workdirs(Path(folder)):
        run = read_run(workdir) if _has_config(workdir) else None
        if lacks := _lacks(run):
            left_out.append(f"{workdir} is left out: it has no {lacks}")
        else:
            runs.append(run)
    return runs, left_out


def _workdirs(folder: Path) -> Iterator[Path]:
    """Folders with a run's config or logs; a config.json without logs may be a pretrained model's."""
    files = {file.parent for name in ("config.json", *_LOGS) for file in folder.rglob(name)}
    return (w for w in sorted(files) if _has_config(w) or any((w / log).is_file() for log in _LOGS))


def _has_config(workdir: Path) -> bool:
    file = workdir / "config.json"
    return file.is_file() and read_json(file).keys() >= _SECTIONS


def _lacks(run: RunRecord | None) -> str:
    if run is None:
        return "config.json of a run"
    return " and no ".join(name for name, found in (("step", run.metrics), ("evaluation", run.evals)) if not found)
