"""A run as its newest checkpoint left it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pods_jax.config import Config
from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool
from pods_jax.training.checkpoint import Checkpoints
from pods_jax.training.progress import Reporter
from pods_jax.training.run import Run, make_run
from pods_jax.training.setup import load_task
from pods_jax.training.workdir import refuse_other_config


@contextlib.contextmanager
def restored_run(
    config: Config, workdir: str | Path, reporter: Reporter, except_section: str | None = None
) -> Iterator[Run]:
    """The run of a workdir at its newest checkpoint; only `except_section` of its config may differ.

    Raises:
      UserError: the workdir holds no checkpoint, or was made by another config.
    """
    path = Path(workdir)
    refuse_other_config(path, config, except_section)
    if not (path / "checkpoints").is_dir():
        raise UserError(f"workdir {path} holds no checkpoint")
    task = load_task(config)
    reporter.task(config, task)
    with RewardPool(num_workers=config.reward.num_workers) as pool:
        run = make_run(config, task, pool, reporter.warm_start)
        checkpoints = Checkpoints(path, config.training.keep_checkpoints)
        restored = checkpoints.restore(run.state, reporter.message)
        checkpoints.close()
        if restored is None:
            raise UserError(f"workdir {path} holds no checkpoint")
        reporter.message(f"policy   checkpoint at step {restored.step}")
        run.load(restored.state, restored.host)
        yield run
