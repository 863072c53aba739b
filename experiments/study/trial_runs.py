"""The runs of trials, as processes."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from pods_jax.io import make_folder
from pods_jax.training import sweep
from study.extents import Extent
from study.trials import Trial, make_all


def make_trials(extent: Extent, workdir: Path, records: Path, workers: int = 1) -> dict[str, str]:
    """Makes the trials that have no record; returns the problems of those that failed, by name.

    One run at a time has all cores, for a language model needs the memory; of several each has a core of its own. A
    run's weights are deleted once it is finished.
    """
    make_folder(records, "folder of records")
    script = Path(__file__).parents[1] / "train.py"

    def make(trials: Sequence[tuple[Trial, tuple[str, ...]]]) -> dict[Trial, Path | str]:
        runs = {t: sweep.SweepRun(extent.setting(t.setting).spec, o, t.seed, workdir / t.name) for t, o in trials}
        sweep.check(list(runs.values()))
        cores = 1 if workers > 1 else None
        failed = sweep.work_off(sweep.Sweep(script, workers, cores_per_run=cores), list(runs.values()))
        for run in runs.values():
            shutil.rmtree(run.workdir / "checkpoints", ignore_errors=True)
        return {trial: failed.get(run.name, run.workdir) for trial, run in runs.items()}

    return make_all(extent, records, make, at_a_time=2 * workers if workers > 1 else 1)
