"""Checkpoints through Orbax: device state, and the host's state as JSON."""

from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from pods_jax.learner import TrainState


class Checkpoints:
    """Saves and restores (TrainState, host state) in `workdir/checkpoints`, newest `keep` kept."""

    def __init__(self, workdir: Path, keep: int):
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager((workdir / "checkpoints").absolute(), options=options)

    def save(self, step: int, state: TrainState, host: dict[str, Any]) -> None:
        """Returns when the state has been copied; files are written in the background."""
        args = ocp.args.Composite(state=ocp.args.StandardSave(state._asdict()), host=ocp.args.JsonSave(host))
        self._manager.save(step, args=args)

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The newest checkpoint, laid out like `like`; None if there is none."""
        step = self.latest_step()
        if step is None:
            return None
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like._asdict())
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), host=ocp.args.JsonRestore())
        restored = self._manager.restore(step, args=args)
        return TrainState(**restored["state"]), restored["host"]

    def latest_step(self) -> int | None:
        """The newest checkpoint's step."""
        return self._manager.latest_step()

    def close(self) -> None:
        """Waits for the last save."""
        self._manager.wait_until_finished()
        self._manager.close()
