"""Helpers of the notebooks: runs made on the spot, in full or (PODS_JAX_QUICK=1) in short, and figures shown."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from IPython.display import Image

from pods_jax.cache import keep_programs
from pods_jax.config import Config
from pods_jax.config.load import load_config
from pods_jax.training import Reporter, train

QUICK = os.environ.get("PODS_JAX_QUICK") == "1"
"""Short runs, for CI: every line is executed, and little is learnt."""

if QUICK:  # little is computed, and much compiled: XLA's optimisations cost more than they give
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
FIGURES = Path(tempfile.mkdtemp(prefix="pods_jax_figures_"))

_SHORT = (
    "data.options.digits=2", "data.options.num_train=6000", "warm_start.num_steps=100", "training.num_steps=4",
    "training.eval_every_steps=2", "evaluation.num_prompts=64", "evaluation.batch_size=64",
)  # fmt: skip


def train_all(config: str, variants: Sequence[Sequence[str]], *, steps: int, seeds: int) -> Path:
    """Trains every variant with every seed in this process, one run at a time, so that seconds can be compared.

    The variants take turns, so that a slow spell of the machine hits them all alike. A line is printed for each run.

    Args:
      config: name of a file in configs/.
      variants: for each the argument of the config, then overrides such as "selection.num_kept=8".
      steps: training steps of each run, with some 20 evaluations.
      seeds: number of seeds, from 0.

    Returns:
      A new folder of workdirs, for `pods_jax.analysis`.
    """
    keep_programs()
    folder = Path(tempfile.mkdtemp(prefix="pods_jax_runs_"))
    for seed in range(1 if QUICK else seeds):
        for argument, *overrides in variants:
            experiment = _experiment(f"{CONFIGS / config}.py:{argument}", overrides, steps, seed)
            name = ", ".join([argument, *overrides, f"seed={seed}"])
            done = train(experiment, folder / name, Reporter(quiet=True))
            if "stopped_by" in done:
                raise KeyboardInterrupt
            accuracy = f"{done['before']['accuracy']:.1%} -> {done['after']['accuracy']:.1%}"
            print(f"{name}: accuracy {accuracy} in {done['steps']} steps, {done['wall_time_s']:.1f} s of training")
    return folder


def _experiment(spec: str, overrides: Sequence[str], steps: int, seed: int) -> Config:
    """The config of one run, which keeps only its last checkpoint."""
    settings = [
        f"seed={seed}", f"training.num_steps={steps}", f"training.eval_every_steps={max(1, steps // 20)}",
        "training.checkpoint_every_steps=0", "training.keep_best=False",
    ]  # fmt: skip
    return load_config(spec, [*settings, *overrides, *(_SHORT if QUICK else ())])


def show(name: str) -> Image:
    """Shows a PNG in FIGURES, at half its size, so that it is sharp."""
    return Image(filename=str(FIGURES / name), retina=True)
