"""Workdirs grouped by config, seeds apart: which method each group is, and how it differs from the others."""

import dataclasses
import itertools
import json
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pods_jax.analysis.labels import differences
from pods_jax.analysis.reach import comparable, remarks
from pods_jax.analysis.runs import RunRecord, flat
from pods_jax.analysis.style import look_of
from pods_jax.analysis.workdirs import find_runs
from pods_jax.errors import UserError

SEEDS = ("seed", "warm_start.seed")
_RULES = {"max_variance": "pods", "max_variance_authors": "pods", "max_reward": "max_reward"}


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one config, which differ in their seeds alone.

    Attributes:
      method: a key of `style.METHODS`, or the name of a selection rule or allocator.
      label: the method, with what tells it from other groups of the same method.
      n, m: rollouts generated and kept a prompt.
    """

    method: str
    label: str
    n: int
    m: int
    config: dict[str, Any]
    runs: tuple[RunRecord, ...]


def read_groups(folder: Path, warn: Callable[[str], None] = warnings.warn) -> list[Group]:
    """The groups of all workdirs in a folder, at any depth, that can be compared (see `reach`).

    warn: gets a line for each run that is left out, and for each that is unfinished.

    Raises:
      UserError: there are none, or a file is damaged.
    """
    runs, left_out = find_runs(folder)
    if not runs:
        raise UserError("; ".join([f"{folder} has no workdir with steps and evaluations in it", *left_out]))
    by_config: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_config.setdefault(json.dumps(_unseeded(run.config), sort_keys=True), []).append(run)
    configs = [json.loads(key) for key in by_config]
    methods = [method_of(config, configs) for config in configs]
    labels = _labels(methods, configs)
    unfinished = [remarks(label, found) for label, found in zip(labels, by_config.values(), strict=True)]
    for line in itertools.chain(left_out, *unfinished):
        warn(line)
    columns = zip(methods, labels, configs, by_config.values(), strict=True)
    return [
        Group(method, label, c["rollout.num_generations"], c["selection.num_kept"], c, tuple(comparable(found)))
        for method, label, c, found in columns
    ]


def method_of(config: dict[str, Any], configs: Sequence[dict[str, Any]]) -> str:
    """The method of a flat config among others: GRPO-GA is the GRPO that generates as much as a selecting one."""
    rule, allocator = config["selection.rule"], config["allocation.name"]
    if allocator != "uniform":
        name = "dapo" if allocator == "dynamic_sampling" else allocator
        return name if rule == "all" else f"{name}_{_RULES.get(rule, rule)}"
    if rule != "all":
        return _RULES.get(rule, rule)
    selecting = {_rollouts_a_prompt(c) for c in configs if c["selection.rule"] != "all"}
    return "grpo_ga" if _rollouts_a_prompt(config) in selecting else "grpo"


def _rollouts_a_prompt(config: dict[str, Any]) -> int:
    """In all its groups."""
    return config["rollout.num_generations"] * config.get("allocation.options.groups_per_prompt", 1)


def main_sizes(groups: Sequence[Group]) -> tuple[int, int]:
    """(n, m) that most of the runs that select have; of all runs, if none selects."""
    selecting = [g for g in groups if g.m < g.n] or list(groups)
    return Counter((g.n, g.m) for g in selecting for _ in g.runs).most_common(1)[0][0]


def _labels(methods: Sequence[str], configs: Sequence[dict[str, Any]]) -> list[str]:
    """The method, with what tells it from others of the same method."""
    labels = []
    for method, config in zip(methods, configs, strict=True):
        same = [c for m, c in zip(methods, configs, strict=True) if m == method]
        labels.append(", ".join([look_of(method).label, *differences(same)[same.index(config)]]))
    return labels


def _unseeded(config: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in flat(config).items() if k not in SEEDS}
