"""What the notebooks share: runs made on the spot, in full or (PODS_JAX_QUICK=1) in short, and showing figures."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from IPython.display import Image

from pods_jax.cache import keep_programs
from pods_jax.config import Config
from pods_jax.config.load import load_config
from pods_jax.training import Reporter, train

QUICK = os.environ.get("PODS_JAX_QUICK") == "1"
"""For CI: every line is run, and little is learnt."""

if QUICK:  # little is computed, and much compiled: XLA's optimisations cost more than they give
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
FIGURES = Path(tempfile.mkdtemp(prefix="pods_jax_figures_"))

_SHORT = (
    "data.options.digits=2", "data.options.num_train=6000", "warm_start.num_steps=100", "training.num_steps=4",
    "training.eval_every_steps=2", "evaluation.num_prompts=64", "evaluation.batch_size=64",
)  # fmt: skip


class _Quiet(Reporter):
    """Says nothing: `train_all` has a line a run."""

    def message(self, text: str) -> None: ...

    def step(self, metrics: dict[str, float]) -> None: ...

    def scores(self, columns: dict[str, dict[str, float]], title: str) -> None: ...

    def steps(self, steps: range, done: int) -> Iterable[int]:
        return steps


def train_all(config: str, variants: Sequence[Sequence[str]], *, steps: int, seeds: int) -> Path:
    """Trains every variant with every seed in this process, one run at a time, so that seconds can be compared.

    The variants take turns, so that a slow spell of the machine hits them all alike.

    Args:
      config: the name of a file in configs/. variants: its argument, then overrides such as "selection.num_kept=8".
      steps: of each run, with some 20 evaluations. seeds: how many; 0, 1, ...

    Returns:
      A new folder of workdirs, for `pods_jax.analysis`.
    """
    keep_programs()
    folder = Path(tempfile.mkdtemp(prefix="pods_jax_runs_"))
    for seed in range(1 if QUICK else seeds):
        for argument, *overrides in variants:
            experiment = _experiment(f"{CONFIGS / config}.py:{argument}", overrides, steps, seed)
            name = ", ".join([argument, *overrides, f"seed={seed}"])
            done = train(experiment, folder / name, _Quiet())
            if "stopped_by" in done:
                raise KeyboardInterrupt
            accuracy = f"{done['before']['accuracy']:.1%} -> {done['after']['accuracy']:.1%}"
            print(f"{name}: accuracy {accuracy} in {done['steps']} steps, {done['wall_time_s']:.1f} s of training")
    return folder


def _experiment(spec: str, overrides: Sequence[str], steps: int, seed: int) -> Config:
    """No checkpoint but the last one."""
    settings = [
        f"seed={seed}", f"training.num_steps={steps}", f"training.eval_every_steps={max(1, steps // 20)}",
        "training.checkpoint_every_steps=0", "training.keep_best=False",
    ]  # fmt: skip
    return load_config(spec, [*settings, *overrides, *(_SHORT if QUICK else ())])


def show(name: str) -> Image:
    """A PNG in FIGURES, at half a pixel a pixel, so that it is sharp."""
    return Image(filename=str(FIGURES / name), retina=True)
