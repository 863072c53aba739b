"""Helpers of the notebooks: runs that are kept, in full or (PODS_JAX_QUICK=1) in short, and figures."""

import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import PIL.Image
from IPython.display import Image
from tqdm.auto import tqdm

from pods_jax.cache import keep_programs
from pods_jax.config import Config
from pods_jax.config.load import load_config
from pods_jax.training import Reporter, train

QUICK = os.environ.get("PODS_JAX_QUICK") == "1"
"""Short runs, for CI: every line is executed, and little is learnt."""

if QUICK:  # little is computed, and much compiled: XLA's optimisations cost more than they give
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs"

_SHORT = (
    "data.options.digits=2", "data.options.num_train=6000", "warm_start.num_steps=100", "training.num_steps=4",
    "training.eval_every_steps=2", "evaluation.num_prompts=64", "evaluation.batch_size=64",
)  # fmt: skip


class Notebook:
    """The files of a notebook: workdirs in runs/notebooks/NAME, and its figures beside them in `figures`.

    A notebook that is executed again goes on with its runs; to have them made anew, delete the folder. With QUICK, all
    is in a temporary folder, which goes when Python ends.
    """

    def __init__(self, name: str):
        self._scratch = tempfile.TemporaryDirectory(prefix=f"{name}_") if QUICK else None
        self.runs = Path(self._scratch.name) if self._scratch else ROOT / "runs" / "notebooks" / name
        self.figures = self.runs / "figures"
        self.figures.mkdir(parents=True, exist_ok=True)

    def train_all(self, config: str, variants: Sequence[Sequence[str]], *, steps: int, seeds: int) -> Path:
        """Trains every variant with every seed in this process, one run at a time, so that seconds can be compared.

        The variants take turns, so that a slow spell of the machine hits them all alike. A bar tells how far it is, and
        a line is printed for each run.

        Args:
          config: name of a file in configs/.
          variants: for each the argument of the config, then overrides such as "selection.num_kept=8".
          steps: training steps of each run, with some 20 evaluations.
          seeds: number of seeds, from 0.

        Returns:
          A folder of workdirs, for `pods_jax.analysis`.
        """
        keep_programs()
        runs = [(seed, *variant) for seed in range(1 if QUICK else seeds) for variant in variants]
        with tqdm(total=len(runs) * steps, unit="step", leave=False) as bar:
            for done, (seed, argument, *overrides) in enumerate(runs, start=1):
                experiment = _experiment(f"{CONFIGS / config}.py:{argument}", overrides, steps, seed)
                self._train(", ".join([argument, *overrides, f"seed={seed}"]), experiment, bar)
                bar.update(done * steps - bar.n)
        return self.runs

    def _train(self, name: str, experiment: Config, bar: tqdm) -> None:
        summary = train(experiment, self.runs / name, _Steps(name, bar))
        if "stopped_by" in summary:
            raise KeyboardInterrupt
        accuracy = f"{summary['before']['accuracy']:.1%} -> {summary['after']['accuracy']:.1%}"
        print(f"{name}: accuracy {accuracy} in {summary['steps']} steps, {summary['wall_time_s']:.1f} s of training")

    def show(self, name: str) -> Image:
        """Shows a PNG of the figures, at half its size, so that it is sharp, in 64 colours, a third of the bytes."""
        small = io.BytesIO()
        PIL.Image.open(self.figures / name).convert("RGB").quantize(64).save(small, "PNG", optimize=True)
        return Image(data=small.getvalue(), retina=True)


class _Steps(Reporter):
    """Moves a bar by the steps of a run, and says nothing."""

    def __init__(self, name: str, bar: tqdm):
        super().__init__(quiet=True)
        self._shown = bar
        bar.set_description(f"{name}: starts")
        self._name = name

    def step(self, metrics: dict[str, float]) -> None:
        super().step(metrics)
        self._shown.set_description(f"{self._name}: reward {metrics['reward']:.2f}", refresh=False)
        self._shown.update()


def _experiment(spec: str, overrides: Sequence[str], steps: int, seed: int) -> Config:
    """The config of one run, which keeps only its last checkpoint."""
    settings = [
        f"seed={seed}", f"training.num_steps={steps}", f"training.eval_every_steps={max(1, steps // 20)}",
        f"training.checkpoint_every_steps={max(1, steps // 4)}", "training.keep_checkpoints=1",
        "training.keep_best=False",
    ]  # fmt: skip
    return load_config(spec, [*settings, *overrides, *(_SHORT if QUICK else ())])
