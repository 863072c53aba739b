"""Reading what a run wrote."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from pods_jax.model_files import read_json


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


def read_run(workdir: Path) -> RunRecord:
    """The records of a workdir, also of one whose run is still going on.

    Raises:
      UserError: no config, or a damaged file.
    """
    config, finished = read_json(workdir / "config.json"), (workdir / "summary.json").is_file()
    metrics, evals = (read_jsonl(workdir / name) for name in ("metrics.jsonl", "eval.jsonl"))
    return RunRecord(config, metrics, evals, workdir, finished)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file, [] if there is none; a line torn by a kill is left out.

    Raises:
      UserError: a line before the last is no JSON object.
    """
    if not path.is_file():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [_record(path, number, line) for number, line in enumerate(whole.splitlines(), start=1)]


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except ValueError as error:
        raise UserError(f"{path}, line {number}: not JSON") from error
    if not isinstance(record, dict):
        raise UserError(f"{path}, line {number}: not a JSON object")
    return record


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one mapping, "section.key" -> value."""
    found = {}
    for k, v in values.items():
        found |= flat(v, f"{prefix}{k}.") if isinstance(v, dict) else {prefix + k: v}
    return found
