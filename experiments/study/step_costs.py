"""Seconds per step of each variant, measured in turns, so that a slow spell of the machine slows all of them."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from pods_jax.analysis.curves import PHASES
from pods_jax.config.load import load_config
from pods_jax.config.schema import Config
from pods_jax.processor import cores, processor_name
from pods_jax.rewards import RewardPool
from pods_jax.training.prompts import load_data
from pods_jax.training.run import Run, make_run
from pods_jax.training.step import train_step
from study.definition import VARIANTS, Study

StepSeconds = dict[str, float]
"""Seconds by phase, and of the whole "step"."""
Definitions = Mapping[str, Sequence[str]]
"""By name, the config whose steps are timed: its file, and then its overrides."""
WARM_UP = 2
"""Steps before the measured ones, which compile."""


def measure(study: Study, variants: Sequence[str], on_round: Callable[[int], None]) -> dict[str, Any]:
    """The step costs of some of the study's variants, with the machine that they were measured on.

    Returns:
      "machine", "cores", "load" (the system's mean load before and after), "rounds", and "variants": n, m and
      `fastest` of each.
    """
    before = os.getloadavg()[0]
    micro_batches = {name: _micro_batches(study, name) for name in variants}
    configs = {}
    for name, sizes in micro_batches.items():
        for micro in sizes:
            configs[name, micro] = config_of(study, name, f"optimizer.micro_batch_size_per_device={micro}")
    times = time_steps(configs, study.cost_rounds, on_round)
    return {
        "machine": processor_name(),
        "cores": len(cores()),
        "load": [before, os.getloadavg()[0]],
        "rounds": study.cost_rounds,
        "variants": {
            name: _sizes(configs[name, sizes[0]]) | fastest({micro: times[name, micro] for micro in sizes})
            for name, sizes in micro_batches.items()
        },
    }


def time_steps(
    configs: Mapping[Any, Config], rounds: int, on_round: Callable[[int], None]
) -> dict[Any, list[StepSeconds]]:
    """Seconds of `rounds` training steps of each config, compilation excluded.

    Every round has one step of each config, in a random order. All start from their warm starts and go on training.
    """
    pool_size = next(iter(configs.values())).reward.num_workers
    rng = np.random.default_rng(0)
    times = {key: [] for key in configs}
    with RewardPool(num_workers=pool_size) as pool:
        runs = {key: make_run(config, load_data(config), pool, lambda *_: None) for key, config in configs.items()}
        keys = list(runs)
        for step in range(1, WARM_UP + rounds + 1):
            for i in rng.permutation(len(keys)):
                seconds = _timed(runs[keys[i]], step)
                times[keys[i]] += [seconds] if step > WARM_UP else []
            on_round(step)
    return times


def summary_of_steps(definitions: Definitions, rounds: int) -> dict[str, Any]:
    """The step costs of some configs, with the machine that they were measured on.

    rounds: timed steps of each config.

    Returns:
      "machine", "load" (the system's mean load before and after), "rounds", and "seconds": by config the median of each
      phase and of the whole "step", and its "step_interval" (`median_interval`).
    """
    before = os.getloadavg()[0]
    configs = {name: load_config(spec, overrides) for name, (spec, *overrides) in definitions.items()}
    times = time_steps(configs, rounds, lambda step: None)
    seconds = {
        name: {phase: float(np.median([t[phase] for t in steps])) for phase in steps[0]}
        | {"step_interval": median_interval([t["step"] for t in steps])}
        for name, steps in times.items()
    }
    load = [before, os.getloadavg()[0]]
    return {"machine": processor_name(), "load": load, "rounds": rounds, "seconds": seconds}


def _timed(run: Run, step: int) -> StepSeconds:
    run.clock.take()
    start = time.perf_counter()
    train_step(run, step)
    seconds = run.clock.take()
    step_s = time.perf_counter() - start - seconds.pop("compile", 0.0)
    return {phase: seconds.get(phase, 0.0) for phase in PHASES} | {"step": step_s}  # not every step selects


def fastest(times: Mapping[int, list[StepSeconds]]) -> dict[str, Any]:
    """The micro-batch with the least median step, given the times of each.

    Returns:
      "micro_batch"; "seconds": its medians by phase; "step_interval": that of the median step (`median_interval`);
      "step_by_micro_batch": the median step of every micro-batch.
    """
    medians = {micro: float(np.median([t["step"] for t in steps])) for micro, steps in times.items()}
    best = min(medians, key=medians.get)
    seconds = {phase: float(np.median([t[phase] for t in times[best]])) for phase in times[best][0]}
    interval = median_interval([t["step"] for t in times[best]])
    return {"micro_batch": best, "seconds": seconds, "step_interval": interval, "step_by_micro_batch": medians}


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Bounds of the median without assumptions about the distribution: two of the values, by their ranks.

    The number of values below the median is binomial with probability 1/2. Too few values, below six for 95 %, have no
    such interval: None.
    """
    below = int(stats.binom.ppf((1 - level) / 2, len(values), 0.5))  # at the most so many, with less than the rest
    if below < 1:
        return None
    ordered = sorted(values)
    return ordered[below - 1], ordered[-below]


def config_of(study: Study, name: str, *overrides: str) -> Config:
    """The config of a variant, of seed 0."""
    return load_config(VARIANTS[name].spec, (*study.overrides_of(name), *overrides))


def _micro_batches(study: Study, name: str) -> list[int]:
    config = config_of(study, name)
    rollouts = config.rollout.num_prompts * config.selection.num_kept
    return sorted({min(micro, rollouts) for micro in study.micro_batches})


def _sizes(config: Config) -> dict[str, int]:
    return {"n": config.rollout.num_generations, "m": config.selection.num_kept}
