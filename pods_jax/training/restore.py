"""A run as one of its checkpoints left it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pods_jax.analysis.runs import read_jsonl
from pods_jax.config import Config
from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool
from pods_jax.training.checkpoint import Checkpoints
from pods_jax.training.progress import Reporter
from pods_jax.training.run import Run, make_run
from pods_jax.training.setup import load_task
from pods_jax.training.workdir import best_step, refuse_other_config


@contextlib.contextmanager
def restored_run(
    config: Config,
    workdir: str | Path,
    reporter: Reporter,
    except_section: str | None = None,
    checkpoint: str = "newest",
) -> Iterator[Run]:
    """The run of a workdir at a checkpoint; only `except_section` of its config may differ.

    checkpoint: "newest", "best" (see `training.keep_best`) or a step.

    Raises:
      UserError: the workdir holds no such checkpoint, or was made by another config.
    """
    path = Path(workdir)
    refuse_other_config(path, config, except_section)
    if not (path / "checkpoints").is_dir():
        raise UserError(f"workdir {path} holds no checkpoint")
    step = _step(path, checkpoint)
    task = load_task(config)
    reporter.task(config, task)
    with RewardPool(num_workers=config.reward.num_workers) as pool:
        run = make_run(config, task, pool, reporter.warm_start)
        checkpoints = Checkpoints(path, config.training.keep_checkpoints)
        restored = checkpoints.restore(run.state, reporter.message, step)
        checkpoints.close()
        if restored is None:
            raise UserError(f"workdir {path} holds no checkpoint '{checkpoint}'")
        reporter.message(f"policy   checkpoint at step {restored.step}")
        run.load(restored.state, restored.host)
        yield run


def _step(path: Path, checkpoint: str) -> int | None:
    """The step that a checkpoint's name stands for; None for the newest."""
    if checkpoint == "newest":
        return None
    step = best_step(read_jsonl(path / "eval.jsonl")) if checkpoint == "best" else checkpoint
    try:
        return int(step)
    except (TypeError, ValueError):
        raise UserError(f"workdir {path} holds no checkpoint '{checkpoint}' (newest, best, or a step)") from None
