"""Runs grouped by data set and config, seeds apart, for figures and notebooks: their methods, labels and looks.

Unfinished runs are left out where they would cut the curves of others, and are named.
"""

import dataclasses
import itertools
import json
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.analysis.runs import RunRecord, find_runs
from pods_jax.analysis.style import SHADES, Look, look_of
from pods_jax.config.methods import METHODS
from pods_jax.config.schema import flat
from pods_jax.errors import UserError

Warn = Callable[[str], None]
SEEDS = ("seed", "warm_start.seed")
"""Config keys in which the runs of a group may differ."""


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs of one config with several seeds.

    Attributes:
      method: a key of `METHODS`, or an allocator and selection rule (see `method_of`).
      label: the method, with what tells it from other groups of the same method, and the data set if there are several.
      n, m: rollouts generated and kept a prompt.
      config: flat, without seeds.
      data_set: name of the data set, with options where data sets of one name differ.
    """

    method: str
    label: str
    n: int
    m: int
    config: dict[str, Any]
    runs: tuple[RunRecord, ...]
    data_set: str = ""


def read_groups(folder: Path, warn: Warn = warnings.warn, metric: str | None = None) -> list[RunGroup]:
    """The groups of all workdirs in a folder, at any depth, data set by data set.

    Args:
      warn: gets a line for each run that is left out, and for each that is unfinished.
      metric: a key of `eval.jsonl`; runs without it are left out.

    Raises:
      UserError: there are none, none has the metric, or a file is damaged.
    """
    runs, left_out = find_runs(folder)
    if not runs:
        raise UserError("; ".join([f"{folder} has no workdir with steps and evaluations in it", *left_out]))
    if metric is not None:
        runs, lacking = _with_metric(folder, runs, metric)
        left_out += lacking
    for line in left_out:
        warn(line)
    data_sets = _by_data_set(runs)
    several = len(data_sets) > 1
    groups = [_groups_of(found, name, several, warn) for name, found in data_sets.items()]
    return list(itertools.chain(*groups))


def _with_metric(folder: Path, runs: Sequence[RunRecord], metric: str) -> tuple[list[RunRecord], list[str]]:
    """The runs that have the metric in every evaluation, and a line for each that lacks it."""
    having = [run for run in runs if all(metric in evaluation for evaluation in run.evals)]
    if not having:
        known = sorted({key for run in runs for evaluation in run.evals for key in evaluation})
        raise UserError(f"the runs in {folder} have no '{metric}' (they have {', '.join(known)})")
    lacking = [run.workdir for run in runs if run not in having]
    return having, [f"{workdir} is left out: its evaluations have no '{metric}'" for workdir in lacking]


def _by_data_set(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs by the name of their data set. All keys of the config's `data` count, as scores on others do not compare."""
    found: dict[str, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(json.dumps(run.config["data"], sort_keys=True), []).append(run)
    sections = [json.loads(key) for key in found]
    return dict(zip(_named_apart([s["name"] for s in sections], map(flat, sections)), found.values(), strict=True))


def _groups_of(runs: Sequence[RunRecord], data_set: str, several: bool, warn: Warn) -> list[RunGroup]:
    """The groups on one data set, which their labels name if there are several."""
    by_config: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_config.setdefault(json.dumps(_unseeded(run.config), sort_keys=True), []).append(run)
    configs = [json.loads(key) for key in by_config]
    methods = [method_of(config, configs) for config in configs]
    labels = _named_apart([look_of(method).label for method in methods], configs)
    groups = []
    for method, name, config, found in zip(methods, labels, configs, by_config.values(), strict=True):
        label = f"{data_set}: {name}" if several else name
        for line in remarks(label, found):
            warn(line)
        n = config["rollout.num_generations"]
        m = config["selection.num_kept"]
        groups.append(RunGroup(method, label, n, m, config, tuple(comparable(found)), data_set))
    return groups


def _unseeded(config: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in flat(config).items() if k not in SEEDS}


def main_sizes(groups: Sequence[RunGroup]) -> tuple[int, int]:
    """(n, m) of most of the runs that select; of most of all runs, if none selects."""
    selecting = [g for g in groups if g.m < g.n] or list(groups)
    return Counter((g.n, g.m) for g in selecting for _ in g.runs).most_common(1)[0][0]


# ---------------------------------------------------------------- methods


_SHOWN_AS = {"pods_authors": "pods"}


def method_of(config: Mapping[str, Any], configs: Iterable[Mapping[str, Any]]) -> str:
    """The name in `METHODS` of a flat config among others; without one, its allocator and selection rule.

    GRPO that generates as many rollouts a prompt as one of the selecting methods is GRPO-GA.
    """
    name = _method_name(config)
    if name != "grpo":
        return _SHOWN_AS.get(name, name)
    selecting = {_rollouts_a_prompt(c) for c in configs if c["selection.rule"] != "all"}
    return "grpo_ga" if _rollouts_a_prompt(config) in selecting else "grpo"


def _method_name(config: Mapping[str, Any]) -> str:
    """The method with the config's rule and allocator; of several, the one with most keys of the objective, all met.

    Where none is met, as an experiment may give all its methods one objective, the first of them counts.
    """
    wanted = _rule_and_allocator(config)
    same = {name: _objective(keys) for name, keys in METHODS.items() if _rule_and_allocator(keys) == wanted}
    if not same:
        return _composed_name(*wanted)
    met = [name for name, keys in same.items() if all(config[key] == value for key, value in keys.items())]
    return max(met or [next(iter(same))], key=lambda name: len(same[name]))


def _rule_and_allocator(keys: Mapping[str, Any]) -> tuple[str, str]:
    return keys["selection.rule"], keys.get("allocation.name", "uniform")


def _objective(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key.startswith("objective.")}


def _composed_name(rule: str, allocator: str) -> str:
    if allocator == "uniform":
        return rule
    return allocator if rule == "all" else f"{allocator}_{'pods' if rule == 'max_variance' else rule}"


def _rollouts_a_prompt(config: Mapping[str, Any]) -> int:
    """Rollouts of a prompt in all its groups together."""
    return config["rollout.num_generations"] * config.get("allocation.options.groups_per_prompt", 1)


# ---------------------------------------------------------------- labels


MAX_KEYS = 4
"""Keys in a label; where more differ, it has the fewest that tell the configs apart."""

_SHORT = {"rollout.num_generations": "n", "selection.num_kept": "m", "optimizer.learning_rate": "lr"}


def differences(configs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """For each flat config "key = value" of the keys that tell it from the others, see `MAX_KEYS`.

    A key is written without its section where no other section has one of that name.
    """
    names = Counter(map(_bare, set().union(*configs)))
    keys = _telling_keys(configs)
    shown = {key: _SHORT.get(key) or (key if names[_bare(key)] > 1 else _bare(key)) for key in keys}
    return [[f"{shown[key]} = {_text(config, key)}" for key in keys] for config in configs]


def _telling_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    differing = [key for key in sorted(set().union(*configs)) if _num_distinct(configs, [key]) > 1]
    if len(differing) <= MAX_KEYS:
        return differing
    chosen: list[str] = []
    while _num_distinct(configs, chosen) < _num_distinct(configs, differing):
        chosen.append(max(differing, key=lambda key: _merit(configs, chosen, key)))
    return sorted(chosen)


def _num_distinct(configs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    return len({json.dumps([config.get(key) for key in keys]) for config in configs})


def _merit(configs: Sequence[Mapping[str, Any]], chosen: Sequence[str], key: str) -> tuple[int, bool, int]:
    """Rank of the next key of a label: by what it tells apart, then well-known keys, then short values."""
    longest = max(len(_text(config, key)) for config in configs)
    return _num_distinct(configs, [*chosen, key]), key in _SHORT, -longest


def _text(config: Mapping[str, Any], key: str) -> str:
    return textwrap.shorten(str(config.get(key)), 40, placeholder="...")


def _bare(key: str) -> str:
    return key.rpartition(".")[2]


def _named_apart(names: Sequence[str], configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names, each with the differences between the configs of equal names."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for name, config in zip(names, configs, strict=True):
        by_name.setdefault(name, []).append(config)
    parts = {name: iter(differences(same)) for name, same in by_name.items()}
    return [", ".join([name, *next(parts[name])]) for name in names]


# ---------------------------------------------------------------- looks


_LINES = ("-", "--", "-.", ":")


def looks_of(groups: Sequence[RunGroup]) -> list[Look]:
    """The looks of the groups' methods, told apart."""
    return _told_apart(groups, [look_of(g.method) for g in groups])


def sized_looks(groups: Sequence[RunGroup], size: str, main: tuple[int, int]) -> list[Look]:
    """Looks labelled by size, "n" or "m".

    PODS keeps its colour at the main sizes, and gets shades at others; GRPO keeps its colour at every size.
    """
    pods = [g for g in groups if g.method == "pods"]
    usual = next((g for g in pods if (g.n, g.m) == main), None)
    shaded = [g for g in pods if g is not usual]
    looks = []
    for g in groups:
        look = look_of(g.method)
        label = f"{size} = {getattr(g, size)}"
        name = label if g.method == "pods" and (g.n, g.m) != main else f"{label} ({look.label})"
        shade = _shade(shaded.index(g)) if g in shaded else {}
        looks.append(dataclasses.replace(look, label=name, **shade))
    return _told_apart(groups, looks)


def _shade(place: int) -> dict[str, str]:
    return {"color": SHADES[place % len(SHADES)], "marker": "v^DP"[place % len(SHADES)]}


def _told_apart(groups: Sequence[RunGroup], looks: Sequence[Look]) -> list[Look]:
    """Looks with differences of configs where labels are equal, and other lines where colours and markers are."""
    labels = _named_apart([look.label for look in looks], [g.config for g in groups])
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for look, label in zip(looks, labels, strict=True):
        cue = (look.color, look.marker)
        found.append(dataclasses.replace(look, label=label, line=_LINES[seen[cue] % len(_LINES)]))
        seen[cue] += 1
    return found


# ---------------------------------------------------------------- unfinished runs


def comparable(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs that go as far as the curves of the group (see `last_step`)."""
    end = last_step(runs)
    return [run for run in runs if _reached(run) >= end]


def last_step(runs: Sequence[RunRecord]) -> int:
    """The step at which the curves of a group end.

    Finished runs decide it, or all runs if none is finished. It makes runs x steps largest: runs that are a little
    behind cut the others' curves, and one that has hardly begun is left out instead.
    """
    steps = sorted(_reached(run) for run in [r for r in runs if r.finished] or runs)
    return max(steps, key=lambda step: step * sum(s >= step for s in steps))


def remarks(label: str, runs: Sequence[RunRecord]) -> list[str]:
    """A line for each run of a group that is unfinished, or evaluated less far than others: whether it is left out."""
    end = last_step(runs)
    furthest = max(map(_reached, runs))
    lines = []
    for run in runs:
        step = _reached(run)
        unfinished = "" if run.finished else "unfinished, "
        if step < end:
            lines.append(f"{run.workdir} is left out: {unfinished}evaluated up to step {step}, and {label} up to {end}")
        elif unfinished or step == end < furthest:
            lines.append(
                f"{run.workdir} is {unfinished}evaluated up to step {step}: the curves of {label} end at {end}"
            )
    return lines


def _reached(run: RunRecord) -> int:
    return run.evals[-1]["step"]
