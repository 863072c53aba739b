"""Reading what a run wrote."""

import dataclasses
import json
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A workdir's config and its log lines, in order of steps."""

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    evals: list[dict[str, Any]]

    @property
    def title(self) -> str:
        c = self.config
        return (
            f"{c['data']['name']}: {c['selection']['rule']}, n = {c['rollout']['num_generations']}, "
            f"m = {c['selection']['num_kept']}, seed {c['seed']}"
        )


def read_run(workdir: Path) -> RunRecord:
    """The records of a workdir, also of one whose run is still going on."""
    config = json.loads((workdir / "config.json").read_text())
    return RunRecord(config, read_jsonl(workdir / "metrics.jsonl"), read_jsonl(workdir / "eval.jsonl"))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file, [] if there is none; a line torn by a kill is left out."""
    if not path.is_file():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one mapping, "section.key" -> value."""
    found = {}
    for k, v in values.items():
        found |= flat(v, f"{prefix}{k}.") if isinstance(v, dict) else {prefix + k: v}
    return found
