"""Measured ratios of steps beside those that the noise scale of GRPO's own runs predicts."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from pods_jax.allocation.pilot_commit import PilotCommitOptions
from pods_jax.analysis import regimes
from pods_jax.analysis.advice import pooled, predicted_ratio
from pods_jax.analysis.curves import cost_at_crossing
from pods_jax.noise_scale import NoiseScale
from study.curve_files import evals_of
from study.estimates import censored_ratio, num_censored
from study.extents import Extent, Method
from study.regime import cost_name
from study.tables import Numbers
from study.trial_tables import rate_scores, reported
from study.trials import Record, Records


def regime_table(extent: Extent, records: Records, step_seconds: Mapping[str, float]) -> Numbers:
    """The results of each setting that has reported runs, see `_setting`."""
    found = {s.name: _setting(extent, s.name, records, step_seconds) for s in extent.settings}
    return {name: table for name, table in found.items() if table["ratios"]}


def _setting(extent: Extent, setting: str, records: Records, step_seconds: Mapping[str, float]) -> Numbers:
    """One setting's results.

    Returns:
      "tuning" and "hours" as in `trial_tables`; "num_prompts"; "seeds": number of reported runs; "noise": by method,
      the noise scale that its own runs measured before the last threshold; "ratios": by method and threshold, `_ratio`.
    """
    baseline, *others = extent.methods
    runs = {method: reported(extent, setting, method, records) for method in extent.methods}
    thresholds = extent.setting(setting).thresholds
    return {
        "tuning": rate_scores(extent, setting, records),
        "hours": sum(r.hours for t, r in records.items() if t.setting == setting),
        "num_prompts": extent.setting(setting).keys["rollout.num_prompts"],
        "seeds": sum(map(len, runs.values())),
        "noise": {m: _noise(_scale(found, thresholds[-1])) for m, found in runs.items() if found},
        "ratios": {
            m: {str(t): _ratio(extent, setting, _both(runs, baseline, m), t, step_seconds) for t in thresholds}
            for m in others
            if runs[m] and runs[baseline]
        },
    }


def _both(runs: Mapping[str, Mapping[int, Record]], baseline: str, method: str) -> dict[str, Mapping[int, Record]]:
    return {name: runs[name] for name in (baseline, method)}


def _noise(scale: NoiseScale) -> Numbers:
    total, inter, intra = scale.in_prompts
    low, high = scale.interval()
    return {"prompts": total, "low": low, "high": high, "inter": inter, "intra": intra}


def _scale(runs: Mapping[int, Record], threshold: float) -> NoiseScale:
    return pooled([x for record in runs.values() for x in noise_before(record, threshold)])


def noise_before(record: Record, threshold: float) -> list[Mapping]:
    """The measurements of a run that were made before it reached a threshold."""
    reached = cost_at_crossing(evals_of(record.curve), threshold, "step")
    return [x for x in record.noise if reached is None or x["step"] <= max(reached, 1)]


def _ratio(
    extent: Extent, setting: str, runs: Mapping[str, Mapping[int, Record]], threshold: float,
    step_seconds: Mapping[str, float],
) -> Numbers:  # fmt: skip
    """The baseline's steps over a method's to a threshold, paired by seeds: "measured" and "predicted".

    Methods are evaluated at different steps, hence `cost_at_crossing`.
    Each side that is not there counts with its own budget. "seconds" and "rollouts" are the measured ratios of these.
    """
    (baseline, theirs), (method, ours) = runs.items()
    seeds = [s for s in theirs if s in ours]
    costs = {
        key: [_spent(of, seeds, threshold, key) for of in (theirs, ours)] for key in ("step", "rollouts/generated")
    }
    prices = [step_seconds[cost_name(setting, name)] for name in (baseline, method)]
    costs["seconds"] = [
        ([price * s for s in spent], price * budget)
        for price, (spent, budget) in zip(prices, costs["step"], strict=True)
    ]
    measured = {key: _paired(*sides) for key, sides in costs.items()}
    return {
        "measured": measured["step"],
        "seconds": measured["seconds"],
        "rollouts": measured["rollouts/generated"],
        "predicted": list(predicted(extent, setting, theirs, method, threshold)),
    }


def _spent(runs: Mapping[int, Record], seeds: Sequence[int], threshold: float, key: str) -> tuple[list[float], float]:
    """The cost of each seed to a threshold, inf for never; and the mean budget."""
    spent = [cost_at_crossing(evals_of(runs[s].curve), threshold, key) for s in seeds]
    budget = float(np.mean([runs[s].curve[key][-1] for s in seeds]))
    return [np.inf if x is None else x for x in spent], budget


def _paired(theirs: tuple[list[float], float], ours: tuple[list[float], float]) -> Numbers:
    found = censored_ratio(theirs[0], ours[0], theirs[1], ours[1])
    return dataclasses.asdict(found) | {"censored": num_censored(theirs[0], ours[0]), "pairs": len(ours[0])}


def predicted(
    extent: Extent, setting: str, baseline: Mapping[int, Record], method: str, threshold: float
) -> tuple[float, float, float]:
    """The ratio of steps that follows from the baseline's own success rates and noise scale until the threshold."""
    noise = [x for record in baseline.values() for x in noise_before(record, threshold)]
    weights = regimes.success_rates(np.concatenate([x["successes"] for x in noise]), noise[0]["rollouts"])
    own, other = (
        regimes.factors(_model(m), regimes.GRID, weights)
        for m in (next(iter(extent.methods.values())), extent.methods[method])
    )
    num_prompts = extent.setting(setting).keys["rollout.num_prompts"]
    return predicted_ratio(pooled(noise), num_prompts, own, own, other)


def _model(method: Method) -> regimes.MethodModel:
    """The model's form of a method."""
    n, m = (method.keys[key] for key in ("rollout.num_generations", "selection.num_kept"))
    if "allocation.options" in method.keys:
        options = PilotCommitOptions(**method.keys["allocation.options"])
        pilot, _, commit = options.sizes(n)
        return regimes.pilot_commit(pilot, commit, options.p_lower, options.p_upper)
    return regimes.pods(n, m) if method.keys["selection.rule"] == "max_variance" else regimes.grpo(m)
