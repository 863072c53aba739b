"""Records of runs, read from their workdirs, and their samples in words."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pods_jax.io import read_json, read_jsonl


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A workdir's config and its log lines, in order of steps.

    Attributes:
      finished: there is a summary.json, which is written last.
      samples: the records of samples.jsonl (see `pods_jax.training.samples`).
    """

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    evals: list[dict[str, Any]]
    workdir: Path
    finished: bool
    samples: list[dict[str, Any]] = dataclasses.field(default_factory=list)

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
        samples=[r for r in read_jsonl(workdir / "samples.jsonl") if "rollouts" in r],  # version 0.1.0 had others
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


# ---------------------------------------------------------------- samples, for a person


def sample_text(record: Mapping[str, Any]) -> str:
    """A record of samples.jsonl as plain text."""
    title = f"==== step {record['step']}: {len(record['kept'])} of {len(record['rewards'])} rollouts kept ===="
    lines = [title, f"prompt: {record['prompt']}", *_reading(record), f"gold:   {record['gold']}"]
    for rollout in record["rollouts"]:
        lines += ["", f"---- {describe(rollout)} ----", rollout["completion"], *_reading(rollout)]
    return "\n".join([*lines, "", ""])


def _reading(record: Mapping[str, Any]) -> list[str]:
    return [f"reads:  {record['reads']}"] if record["reads"] else []


def describe(rollout: Mapping[str, Any]) -> str:
    """A rollout's fate in one line: kept or dropped, advantage, reward and its parts, verdict, length."""
    fate = "dropped" if rollout["advantage"] is None else f"kept, advantage {rollout['advantage']:+.2f}"
    parts = "".join(f", {name} {_number(value)}" for name, value in rollout["parts"].items())
    verdict = f"{'right' if rollout['correct'] else 'wrong'} ({rollout['reason']})"
    length = f"{rollout['tokens']} tokens{', cut at the limit' if rollout['truncated'] else ''}"
    return f"{fate}; reward {_number(rollout['reward'])}{parts}; {verdict}; {length}"


def _number(value: float | None) -> str:
    """A number of a record, in which None stands for one that is not finite."""
    return "not finite" if value is None or not math.isfinite(value) else f"{value:.4g}"
