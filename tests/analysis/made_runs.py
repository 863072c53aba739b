"""Workdirs as a run would leave them, with curves that are made up."""

import json
from pathlib import Path

import numpy as np

from pods_jax.config.schema import default_config


def make_run(folder: Path, *, n: int, m: int, rule: str, seed: int, rate: float, allocator: str = "uniform") -> Path:
    """A workdir of 40 steps whose accuracy saturates at `rate` a second; a step costs 0.01 + 0.001 n + 0.004 m s."""
    config = default_config()
    config.rollout.num_generations, config.selection.num_kept, config.selection.rule = n, m, rule
    config.seed, config.allocation.name = seed, allocator
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    rng, cost = np.random.default_rng([seed, n, m]), 0.01 + 0.001 * n + 0.004 * m
    phases = {"sample": 0.001 * n, "update": 0.004 * m, "verify": 0.004, "select": 0.001}
    totals = [
        {"step": i, "wall_time_s": i * cost, "rollouts/generated": 16.0 * n * i, "rollouts/trained": 16.0 * m * i}
        for i in range(41)
    ]
    metrics = [t | {f"time/{k}_s": v for k, v in phases.items()} | {"time/step_s": cost} for t in totals[1:]]
    evals = [
        t
        | {
            "accuracy": float(0.1 + 0.8 * (1 - np.exp(-rate * t["wall_time_s"])) + 0.01 * rng.normal()),
            "mean_length": float(6 + 0.1 * rng.normal()),
        }
        for t in totals[::4]
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in metrics))
    (folder / "eval.jsonl").write_text("".join(json.dumps(r) + "\n" for r in evals))
    (folder / "summary.json").write_text("{}")
    return folder


def make_study(folder: Path, seeds: int = 3) -> None:
    """PODS, GRPO, GRPO-GA, random, Pilot-Commit, and PODS at other sizes; PODS learns twice as fast as GRPO-GA."""
    methods = {
        "pods": (64, 16, "max_variance", 1.0),
        "grpo": (16, 16, "all", 0.6),
        "grpo_ga": (64, 64, "all", 0.5),
        "random": (64, 16, "random", 0.5),
        "n32": (32, 16, "max_variance", 0.9),
        "n128": (128, 16, "max_variance", 0.8),
        "m4": (64, 4, "max_variance", 0.7),
    }
    for name, (n, m, rule, rate) in methods.items():
        for seed in range(seeds):
            make_run(folder / name / str(seed), n=n, m=m, rule=rule, seed=seed, rate=rate)
    make_run(folder / "pc", n=64, m=64, rule="all", seed=0, rate=0.7, allocator="pilot_commit")
