"""The runs of trials."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pods_jax.io import make_folder
from pods_jax.training import sweep
from study.extents import Extent
from study.trials import Trial, make_all
from study.workers import Workers


def make_trials(extent: Extent, workdir: Path, records: Path, workers: int) -> dict[str, str]:
    """Makes the trials that have no record; returns the problems of those that failed, by name.

    workers: runs at a time, each on its share of the cores. A run's weights are deleted once it is finished.
    """
    make_folder(records, "folder of records")

    def make(trials: Sequence[tuple[Trial, tuple[str, ...]]]) -> Iterator[tuple[Trial, Path | str]]:
        named = {workdir / t.name: t for t, _ in trials}
        runs = [sweep.SweepRun(extent.setting(t.setting).spec, o, t.seed, workdir / t.name) for t, o in trials]
        sweep.check(runs)
        for run, problem in sweep.make(pool.run, runs):
            shutil.rmtree(run.workdir / "checkpoints", ignore_errors=True)
            yield named[run.workdir], problem or run.workdir

    with Workers(workers) as pool:
        return make_all(extent, records, make)
