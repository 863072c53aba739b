"""Workdirs as the study's runs would leave them, with curves that are made up."""

import json
from pathlib import Path

import numpy as np

from pods_jax.analysis.curves import PHASES


def make_run(folder: Path, rate: float, seed: int, rollouts_per_step: int = 1024, num_steps: int = 160) -> None:
    """Accuracy 1 - exp(-rate x step), the rate a little other for each seed."""
    folder.mkdir(parents=True)
    steps = np.arange(0, num_steps + 1, 4)
    accuracy = np.round(1 - np.exp(-rate * (1 + 0.02 * seed) * steps), 5)
    totals = ("rollouts/trained", "tokens/generated", "tokens/trained", "rounds", "wall_time_s")
    evals = [
        {"step": int(s), "accuracy": float(a), "rollouts/generated": float(s * rollouts_per_step)}
        | dict.fromkeys(totals, float(s))
        for s, a in zip(steps, accuracy, strict=True)
    ]
    (folder / "eval.jsonl").write_text("".join(json.dumps(e) + "\n" for e in evals))
    (folder / "config.json").write_text("{}")
    (folder / "summary.json").write_text(json.dumps({"time/step_s": 3000, "time/eval_s": 400, "time/compile_s": 200}))


def make_costs(workdir: Path, sizes: dict[str, tuple[int, int]]) -> dict:
    """costs.json of steps of 0.01 + 0.001 n + 0.004 m seconds."""
    variants = {
        name: {
            "n": n, "m": m, "micro_batch": 64, "step_by_micro_batch": {"64": 0.01 + 0.001 * n + 0.004 * m},
            "seconds": dict.fromkeys(PHASES, 0.0)
            | {"sample": 0.001 * n, "update": 0.004 * m, "step": 0.01 + 0.001 * n + 0.004 * m},
        }
        for name, (n, m) in sizes.items()
    }  # fmt: skip
    costs = {"machine": "made up", "cores": 2, "load": [0.1, 0.2], "rounds": 3, "variants": variants}
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "costs.json").write_text(json.dumps(costs))
    return costs


SIZES = {
    "grpo": (16, 16), "grpo_ga": (64, 64), "pods": (64, 16), "random": (64, 16), "max_reward": (64, 16),
    "percentile": (64, 16), "n=32": (32, 16), "n=128": (128, 16), "n=256": (256, 16), "m=2": (64, 2), "m=4": (64, 4),
    "m=8": (64, 8), "m=32": (64, 32), "statistics=group": (64, 16),
}  # fmt: skip
