"""The study's numbers, from workdirs and step costs: costs to thresholds, and their ratios. Imports no JAX."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax.analysis.curves import (
    Curves,
    curves_of,
    eval_column,
    first_crossing,
    first_reach,
    half_width,
    rollouts_to_target,
    running_mean,
    speed_up,
)
from pods_jax.analysis.runs import RunRecord, read_run
from pods_jax.errors import UserError
from study.curve_files import read_curve_file, run_hours, run_record
from study.definition import PODS, TARGETS, THRESHOLDS, WINDOW, Table
from study.estimates import (
    CostModel,
    censored_ratio,
    cut,
    fit_costs,
    geometric_mean,
    mean_interval,
    num_censored,
)

Numbers = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Found:
    """The runs of a table.

    Attributes:
      seeds: those that all variants have finished.
      runs: by variant, in the order of the seeds.
      hours: all their steps, evaluations and compilation together, on the machine that they were made on.
    """

    seeds: list[int]
    runs: dict[str, list[RunRecord]]
    hours: float


def find(table: Table, workdir: Path) -> Found:
    """The finished runs of a table's variants, by workdirs or files of runs; a variant without any is left out.

    workdir: has VARIANT/seed=N, the workdir of a run, or VARIANT/seed=N.json (`study.curve_files`), which is preferred.

    Raises:
      UserError: a baseline has none, or the variants have no seed in common.
    """
    finished = {name: _finished_seeds(workdir / name) for name in table.variants}
    present = {name: seeds for name, seeds in finished.items() if seeds}
    missing = [name for name in table.baselines if name not in present]
    seeds = sorted(set.intersection(*present.values())) if present else []
    if missing or not seeds:
        raise UserError(f"{workdir} has no finished runs of {', '.join(missing or table.variants)} with a common seed")
    read = {name: [_read(workdir / name / f"seed={s}") for s in seeds] for name in present}
    hours = sum(spent for runs in read.values() for _, spent in runs)
    return Found(seeds, {name: [run for run, _ in runs] for name, runs in read.items()}, hours)


def _read(folder: Path) -> tuple[RunRecord, float]:
    """A run, of its file or its workdir, and its hours."""
    file = folder.with_suffix(".json")
    if file.is_file():
        return run_record(file), read_curve_file(file)["hours"]
    return read_run(folder), run_hours(folder)


def _finished_seeds(folder: Path) -> set[int]:
    finished = [*(f.parent for f in folder.glob("seed=*/summary.json")), *folder.glob("seed=*.json")]
    return {int(f.name.removeprefix("seed=").removesuffix(".json")) for f in finished}


# ---------------------------------------------------------------- learning against wall-clock


def step_curves(found: Found) -> dict[str, Curves]:
    """Running means of test accuracy over steps."""
    return {name: curves_of(runs, "accuracy", "step").smoothed(WINDOW) for name, runs in found.runs.items()}


def in_seconds(curves: Mapping[str, Curves], costs: Numbers) -> dict[str, Curves]:
    """Against training time: steps x the variant's common seconds per step."""
    seconds = {name: v["seconds"]["step"] for name, v in costs["variants"].items()}
    return {name: Curves(c.x * seconds[name], c.y) for name, c in curves.items()}


def learning_table(table: Table, workdir: Path, costs: Numbers) -> Numbers:
    """Accuracies and times to the thresholds of each variant, and speed-ups over each baseline.

    Returns:
      "seeds"; "hours" of all runs; "rows" by variant (see `_row`); "speed_ups" by baseline and variant (see
      `_speed_ups`); "at_equal_time": mean accuracies with half-widths of all variants at the moments at which the first
      baseline's mean reaches each threshold, None beyond a variant's run.
    """
    found = find(table, workdir)
    steps = step_curves(found)
    seconds = in_seconds(steps, costs)
    return {
        "seeds": found.seeds,
        "hours": found.hours,
        "rows": {name: _row(steps[name], seconds[name], costs["variants"][name]) for name in steps},
        "speed_ups": {
            b: {name: _speed_ups(b, name, steps, seconds) for name in steps if name != b} for b in table.baselines
        },
        "at_equal_time": _at_equal_time(seconds, table.baselines[0]),
    }


def _row(steps: Curves, seconds: Curves, cost: Numbers) -> Numbers:
    """Sizes, seconds per step by phase, accuracies, and where the mean curve reaches the thresholds (inf: nowhere)."""
    best = int(steps.mean.argmax())
    return {
        "n": cost["n"],
        "m": cost["m"],
        "seconds_per_step": cost["seconds"],
        "first": float(steps.mean[0]),
        "best": float(steps.mean[best]),
        "best_at_step": float(steps.x[best]),
        "last": float(steps.mean[-1]),
        "last_half_width": float(steps.half_width[-1]),
        "lasts": steps.y[:, -1].tolist(),
        "steps_to": {str(t): first_reach(steps, t) for t in THRESHOLDS},
        "steps_by_seed": {str(t): _crossings(steps, t) for t in THRESHOLDS},
        "seconds_to": {str(t): first_reach(seconds, t) for t in THRESHOLDS},
    }


def _speed_ups(baseline: str, name: str, steps: Mapping[str, Curves], seconds: Mapping[str, Curves]) -> Numbers:
    """`speed_up` of the mean curves, and paired by seed: for each threshold, and for 99 % of the baseline's best mean.

    "paired": the geometric mean over seeds, with "censored" as in `paired_rollouts`; "steps": the same in steps. The
    ratio of the two is that of the step costs, if none is censored. The 99 % rule is of mean curves: it has no pairs.
    """
    rows = {"99 %": dataclasses.asdict(speed_up(seconds[baseline], seconds[name], paired=True))}
    for t in THRESHOLDS:
        of_means = dataclasses.asdict(speed_up(seconds[baseline], seconds[name], threshold=t, paired=True))
        rows[str(t)] = of_means | {
            "paired": _paired_reaches(seconds[baseline], seconds[name], t),
            "steps": _paired_reaches(steps[baseline], steps[name], t),
        }
    return rows


def _paired_reaches(baseline: Curves, method: Curves, threshold: float) -> Numbers:
    """The ratio of what single runs spend to a threshold; a whole run is their budget."""
    return _censored(_crossings(baseline, threshold), _crossings(method, threshold), baseline.x[-1], method.x[-1])


def _crossings(curves: Curves, threshold: float) -> list[float]:
    """The x at which each run, its evaluations joined by lines, crosses the threshold first; inf for never."""
    return [first_crossing(curves.x, run, threshold) for run in curves.y]


def _at_equal_time(seconds: Mapping[str, Curves], baseline: str) -> list[Numbers]:
    moments = [(t, first_reach(seconds[baseline], t)) for t in THRESHOLDS]
    return [
        {"threshold": t, "seconds": at, "accuracy": {name: _at(c, at) for name, c in seconds.items()}}
        for t, at in moments
        if np.isfinite(at)
    ]


def _at(curves: Curves, seconds: float) -> Numbers | None:
    if seconds > curves.x[-1]:
        return None
    values = np.array([np.interp(seconds, curves.x, run) for run in curves.y])
    return {"mean": float(values.mean()), "half_width": float(half_width(values))}


# ---------------------------------------------------------------- step costs


def cost_table(costs: Numbers) -> Numbers:
    """The measured costs, with the fit of a + b n + c m and what it says of PODS at the main sizes."""
    model = cost_model(costs)
    main = main_pods(costs)
    return costs | {
        "model": dataclasses.asdict(model),
        "update_share": model.c / model.b,
        "gain": float(model.gain(main["n"], main["m"])),
        "update_share_for_gain": {str(g): _share_for(model, main["n"], main["m"], g) for g in (1.5, 1.7, 2.0, 3.0)},
    }


def cost_model(costs: Numbers) -> CostModel:
    """The fit of a + b n + c m to all sizes."""
    return fit_costs(seconds_by_size(costs))


def main_pods(costs: Numbers) -> Numbers:
    """The costs of PODS at its main sizes."""
    return next(variant for name, variant in costs["variants"].items() if name in PODS)


def seconds_by_size(costs: Numbers) -> dict[tuple[int, int], float]:
    """Seconds per step by (n, m); of variants with equal sizes those of PODS, else of the first."""
    steps: dict[tuple[int, int], float] = {}
    for name in sorted(costs["variants"], key=lambda name: name not in PODS):
        variant = costs["variants"][name]
        steps.setdefault((variant["n"], variant["m"]), variant["seconds"]["step"])
    return steps


def _share_for(model: CostModel, n: int, m: int, gain: float) -> float:
    """The c / b at which a step with all n costs `gain` times one with m of n; inf where n / m is smaller."""
    slope = model.b * (n - gain * m)
    return (gain - 1) * (model.a + model.b * n) / slope if slope > 0 else np.inf


# ---------------------------------------------------------------- allocation


def allocation_table(table: Table, workdir: Path) -> Numbers:
    """Rollouts generated until the targets are reached, and the ratios to each baseline's.

    Returns:
      "seeds"; "hours" of all runs; "rows" by variant: final accuracies, mean totals, and rollouts to each target (see
      `_rollouts_to`); "ratios" by baseline and variant (see `_rollout_ratios`).
    """
    found = find(table, workdir)
    curves = rollout_curves(found)
    spent = {name: {t: _spent(runs, t) for t in TARGETS} for name, runs in found.runs.items()}
    shared = {t: shared_seeds([by_target[t] for by_target in spent.values()]) for t in TARGETS}
    rows = {}
    for name, runs in found.runs.items():
        to_target = {str(t): _rollouts_to(runs, spent[name][t], shared[t]) for t in TARGETS}
        rows[name] = _allocation_row(runs, curves[name]) | {"rollouts_to": to_target}
    ratios = {
        b: {name: _rollout_ratios(b, name, curves, rows) for name in curves if name != b} for b in table.baselines
    }
    return {"seeds": found.seeds, "hours": found.hours, "targets": list(TARGETS), "rows": rows, "ratios": ratios}


def rollout_curves(found: Found) -> dict[str, Curves]:
    """Running means of test accuracy over rollouts generated."""
    return {
        name: curves_of(runs, "accuracy", "rollouts/generated").smoothed(WINDOW) for name, runs in found.runs.items()
    }


def _spent(runs: Sequence[RunRecord], target: float) -> list[float]:
    found = (rollouts_to_target(run.evals, target, window=WINDOW) for run in runs)
    return [np.inf if spent is None else spent for spent in found]


def shared_seeds(spent: Sequence[Sequence[float]]) -> list[int]:
    """Places of the seeds with which every variant gets to a target; spent: [variants, seeds], inf for never."""
    return [i for i, by_variant in enumerate(zip(*spent, strict=True)) if np.isfinite(by_variant).all()]


def _allocation_row(runs: Sequence[RunRecord], curves: Curves) -> Numbers:
    """Mean totals, and accuracies: those after the last step are of each run's own, where some end before others."""
    last = [run.evals[-1] for run in runs]
    lasts = [float(running_mean(eval_column(run, "accuracy"), WINDOW)[-1]) for run in runs]
    totals = ("step", "rounds", "rollouts/generated", "rollouts/trained", "tokens/generated", "tokens/trained")
    return {key: float(np.mean([e[key] for e in last])) for key in totals} | {
        "first": float(curves.y[:, 0].mean()),
        "best": float(curves.mean.max()),
        "last": dataclasses.asdict(mean_interval(lasts)),
    }


def _rollouts_to(runs: Sequence[RunRecord], spent: list[float], shared: Sequence[int]) -> Numbers:
    """Rollouts to a target.

    Returns:
      the geometric mean over the shared seeds with its interval, and their mean "steps"; "reached": the number of seeds
      that get there; "by_seed".
    """
    steps = [_steps_at(runs[i], spent[i]) for i in shared]
    return shared_rollouts(spent, shared) | {"steps": float(np.mean(steps)) if steps else np.nan}


def shared_rollouts(spent: list[float], shared: Sequence[int]) -> Numbers:
    """The part of `_rollouts_to` that follows from the rollouts of each seed."""
    mean = dataclasses.asdict(geometric_mean([spent[i] for i in shared]))
    return mean | {"reached": int(np.isfinite(spent).sum()), "by_seed": spent}


def _steps_at(run: RunRecord, rollouts: float) -> int:
    return next(e["step"] for e in run.evals if e["rollouts/generated"] >= rollouts)


def _rollout_ratios(baseline: str, name: str, curves: Mapping[str, Curves], rows: Numbers) -> Numbers:
    """`speed_up` of mean curves over rollouts, for each target, and for 99 % of the baseline's best mean.

    Targets have the ratios "paired" and "equal_budgets" too.
    """
    ratios = {"99 %": dataclasses.asdict(speed_up(curves[baseline], curves[name], paired=True))}
    for t in TARGETS:
        of_means = dataclasses.asdict(speed_up(curves[baseline], curves[name], threshold=t, paired=True))
        ratios[str(t)] = of_means | {
            "paired": paired_rollouts(rows[baseline], rows[name], str(t)),
            "equal_budgets": equal_budgets(rows[baseline], rows[name], str(t)),
        }
    return ratios


def paired_rollouts(baseline: Numbers, method: Numbers, target: str) -> Numbers:
    """The ratio of rollouts to a target over paired seeds, given two rows of the table.

    A seed with which only one side gets there counts with the other's budget, its mean rollouts in a whole run;
    "censored" is the number of them.
    """
    theirs = _by_seed(baseline, target)
    ours = _by_seed(method, target)
    return _censored(theirs, ours, baseline["rollouts/generated"], method["rollouts/generated"])


def equal_budgets(baseline: Numbers, method: Numbers, target: str) -> Numbers:
    """As `paired_rollouts`, with both sides cut at the smaller of the two budgets: none had more to spend."""
    budget = min(baseline["rollouts/generated"], method["rollouts/generated"])
    theirs = cut(_by_seed(baseline, target), budget)
    ours = cut(_by_seed(method, target), budget)
    return _censored(theirs, ours, budget, budget)


def _censored(theirs: list[float], ours: list[float], their_budget: float, our_budget: float) -> Numbers:
    ratio = censored_ratio(theirs, ours, float(their_budget), float(our_budget))
    return dataclasses.asdict(ratio) | {"censored": num_censored(theirs, ours)}


def _by_seed(row: Numbers, target: str) -> list[float]:
    """Rollouts of each seed, inf for never; a JSON file has null."""
    return [np.inf if spent is None else spent for spent in row["rollouts_to"][target]["by_seed"]]


# ---------------------------------------------------------------- every table


def ratios_of(numbers: Numbers) -> Numbers:
    """The ratios of a table by baseline and variant; none in a table of step costs or of trials."""
    return numbers.get("speed_ups") or numbers.get("ratios") or {}


def at(results: Mapping[str, Numbers], place: Sequence[str]) -> Numbers | None:
    """What lies at a place of the results, keys from the table on; None where nothing does, as in a quick study."""
    found = results
    for key in place:
        found = found.get(key, {})
    return found or None
