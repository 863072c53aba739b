"""Numbers of the language model's study, from the records of its trials: costs to thresholds, and paired ratios."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pods_jax.analysis.curves import Curves, cost_to_target
from study.curve_files import evals_of
from study.estimates import censored_ratio, cut, geometric_mean, mean_interval, num_censored
from study.extents import Extent, Method, Setting
from study.tables import Numbers
from study.trials import Record, Records, Trial, chosen_rate, tried

WINDOW = 2
"""Number of evaluations, the last ones until then, whose mean accuracy a threshold is compared with."""

COSTS = {"steps": "step", "rollouts": "rollouts/generated", "tokens": "tokens/generated"}
"""Costs of reaching a threshold: the name in tables -> the name in records."""

BASELINES = ("grpo", "grpo_ga")

StepCosts = Mapping[str, Mapping[str, Any]]
"""By method, what `step_costs.summary_of_steps` says of its steps."""


def trial_table(extent: Extent, records: Records, step_costs: Mapping[str, StepCosts]) -> Numbers:
    """All results by setting (see `_setting_table`), those of settings without a reported run left out.

    step_costs: by setting, where they were measured.
    """
    tables = {s.name: _setting_table(extent, s, records, step_costs.get(s.name, {})) for s in extent.settings}
    return {name: table for name, table in tables.items() if table["rows"]}


def _setting_table(extent: Extent, setting: Setting, records: Records, step_costs: StepCosts) -> Numbers:
    """Results of one setting.

    Returns:
      "thresholds"; "hours" of all runs; "tuning": by method, the mean score of each learning rate on the tuning seeds;
      "rows" by method (see `_row`); "ratios" by baseline, method and threshold (see `_ratios`).
    """
    runs = {method: reported(extent, setting.name, method, records) for method in extent.methods}
    present = {method: found for method, found in runs.items() if found}
    rows = {method: _row(extent.methods[method], found, setting.thresholds) for method, found in present.items()}
    for method, row in rows.items():
        if method in step_costs:
            _add_seconds(row, step_costs[method])
    return {
        "thresholds": list(setting.thresholds),
        "hours": sum(r.hours for t, r in records.items() if t.setting == setting.name),
        "tuning": rate_scores(extent, setting.name, records),
        "rows": rows,
        "ratios": {
            b: {m: _ratios(rows[b], rows[m], setting.thresholds) for m in present if m != b}
            for b in BASELINES
            if b in present
        },
    }


def reported(extent: Extent, setting: str, method: str, records: Records) -> dict[int, Record]:
    """The records of a method's reported seeds at its chosen learning rate, by seed."""
    if not tried(extent, records, setting, extent.methods[method].rate_of or method):
        return {}
    rate = chosen_rate(extent, records, setting, method)
    trials = {seed: Trial(setting, method, rate, seed) for seed in extent.seeds}
    return {seed: records[trial] for seed, trial in trials.items() if trial in records}


def curves(runs: Mapping[int, Record], axis: str) -> Curves:
    """Accuracies of all seeds, means over the last `WINDOW` evaluations, at the mean x of each evaluation.

    They end with the run that ended first. axis: a name of a record's curve.
    """
    shortest = min(len(r.curve["accuracy"]) for r in runs.values())
    y = np.array([r.curve["accuracy"][:shortest] for r in runs.values()])
    x = np.mean([r.curve[axis][:shortest] for r in runs.values()], axis=0)
    return Curves(x, y).smoothed(WINDOW)


def rate_scores(extent: Extent, setting: str, records: Records) -> dict[str, dict[str, float]]:
    """The mean score of each rate on the tuning seeds, by method that has a rate of its own."""
    own = [name for name, method in extent.methods.items() if not method.rate_of]
    return {name: _by_rate(tried(extent, records, setting, name)) for name in own}


def _by_rate(scores: Mapping[float, float]) -> dict[str, float]:
    return {f"{rate:g}": scores[rate] for rate in sorted(scores)}


def _row(method: Method, runs: Mapping[int, Record], thresholds: Sequence[float]) -> Numbers:
    """A method's results.

    Returns:
      "n", "m", "rate", "seeds"; "first" and "last": mean accuracies with intervals; "budget": mean total of each cost;
      "to": by threshold and cost, the geometric mean over the seeds that get there, their number, and "by_seed".
    """
    finals = [r.curve["accuracy"][-WINDOW:] for r in runs.values()]
    keys = method.keys
    return {
        "n": keys["rollout.num_generations"],
        "m": keys["selection.num_kept"],
        "rate": next(iter(runs.values())).trial.rate,
        "seeds": list(runs),
        "first": dataclasses.asdict(mean_interval([r.curve["accuracy"][0] for r in runs.values()])),
        "last": dataclasses.asdict(mean_interval([float(np.mean(f)) for f in finals])),
        "budget": {name: float(np.mean([r.curve[key][-1] for r in runs.values()])) for name, key in COSTS.items()},
        "to": {str(t): {name: _to(runs, t, key) for name, key in COSTS.items()} for t in thresholds},
    }


def _to(runs: Mapping[int, Record], threshold: float, cost: str) -> Numbers:
    by_seed = [cost_to_target(evals_of(r.curve), threshold, cost, window=WINDOW) for r in runs.values()]
    reached = [spent for spent in by_seed if spent is not None]
    return dataclasses.asdict(geometric_mean(reached)) | {"by_seed": by_seed}


def _add_seconds(row: Numbers, step_cost: Mapping[str, Any]) -> None:
    """Adds the cost "seconds" to a method's results, that of its steps."""
    of_step = step_cost["step"]
    row |= {"step_seconds": of_step, "step_interval": step_cost["step_interval"]}
    row["budget"]["seconds"] = row["budget"]["steps"] * of_step
    for by_cost in row["to"].values():
        steps = by_cost["steps"]
        scaled = {key: steps[key] * of_step for key in ("value", "low", "high")}
        by_seed = [None if spent is None else spent * of_step for spent in steps["by_seed"]]
        by_cost["seconds"] = steps | scaled | {"by_seed": by_seed}


def _ratios(baseline: Numbers, method: Numbers, thresholds: Sequence[float]) -> Numbers:
    """The baseline's cost over the method's by threshold and cost, paired by the seeds that both have.

    Both are cut at the smaller of the two budgets; "censored" is the number of pairs in which one side is not there by
    then and counts with that budget.
    """
    seeds = [s for s in baseline["seeds"] if s in method["seeds"]]
    costs = [name for name in baseline["budget"] if name in method["budget"]]
    return {str(t): {name: _ratio(baseline, method, str(t), name, seeds) for name in costs} for t in thresholds}


def _ratio(baseline: Numbers, method: Numbers, threshold: str, cost: str, seeds: Sequence[int]) -> Numbers:
    budget = min(baseline["budget"][cost], method["budget"][cost])
    theirs = cut(_spent(baseline, threshold, cost, seeds), budget)
    ours = cut(_spent(method, threshold, cost, seeds), budget)
    found = dataclasses.asdict(censored_ratio(theirs, ours, budget, budget))
    return found | {"censored": num_censored(theirs, ours), "pairs": len(seeds)}


def _spent(row: Numbers, threshold: str, cost: str, seeds: Sequence[int]) -> list[float]:
    """The cost of each seed to a threshold, inf for never."""
    by_seed = dict(zip(row["seeds"], row["to"][threshold][cost]["by_seed"], strict=True))
    return [np.inf if by_seed[s] is None else by_seed[s] for s in seeds]
