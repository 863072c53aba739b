"""Boards that a run is shown on: TensorBoard, and Weights & Biases where the config names a project."""

import contextlib
import json
import logging
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pods_jax.config.schema import Config, to_dict
from pods_jax.parallel.hosts import is_main
from pods_jax.plugins import as_if_absent
from pods_jax.training.wandb_board import WandbBoard

with as_if_absent("torch"):  # tensorboardX would load it, and use nothing of it here: 180 MB
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.summary import scalar, text


class Board:
    """An event file that the calling thread writes: what goes wrong with it costs the board, and not the run.

    (tensorboardX's own `SummaryWriter` has a thread, which dies of a full disk, and then blocks whoever logs.)
    """

    def __init__(self, folder: Path, first_step: int, note: Callable[[str], None]):
        """Hides what an earlier life of the run wrote from `first_step` on. note: gets a line if the board ends."""
        self._note = note
        self._folder = folder
        self._writer: EventsWriter | None = None
        if is_main():
            self._guarded(self._open)
            self._guarded(lambda: self._write(Event(step=first_step, session_log=SessionLog(status=SessionLog.START))))

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Writes numbers by name."""
        self._guarded(lambda: self._add(scalars, step))

    def add_text(self, name: str, content: str, step: int) -> None:
        """Writes a text that is shown as it is, line by line."""
        self._guarded(lambda: self._add_text(name, content, step))

    def close(self) -> None:
        """Closes the file."""
        self._guarded(lambda: self._writer.close())
        self._writer = None

    def _open(self) -> None:
        logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # it warns of each metric without a number
        self._folder.mkdir(exist_ok=True)
        self._writer = EventsWriter(str(self._folder / "events"))

    def _add(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._write(Event(step=step, summary=scalar(name, value)))
        self._writer.flush()

    def _add_text(self, name: str, content: str, step: int) -> None:
        self._write(Event(step=step, summary=text(name, textwrap.indent(content, "    ", lambda line: True))))
        self._writer.flush()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write_event(event)

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._writer is None and action != self._open:
            return
        try:
            action()
        except OSError as error:
            self._writer = None
            self._note(f"note     no more TensorBoard: {self._folder} cannot be written: {error.strerror}")


class Boards:
    """Every board of a run: TensorBoard's in the workdir, and Weights & Biases if `logging.wandb` names a project."""

    def __init__(self, config: Config, workdir: Path, first_step: int, note: Callable[[str], None]):
        """first_step: the first that this process makes. note: gets a line if a board ends.

        Raises:
          UserError: see `WandbBoard`.
        """
        self._boards: list[Board | WandbBoard] = [Board(workdir / "tensorboard", first_step, note)]
        if config.logging.wandb and is_main():
            self._boards.append(WandbBoard(config.logging.wandb, config, workdir, note))
        self.add_text("config", json.dumps(to_dict(config), indent=2), first_step - 1)

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Shows numbers by name."""
        for board in self._boards:
            board.add(scalars, step)

    def add_text(self, name: str, content: str, step: int) -> None:
        """Shows a text as it is, line by line."""
        for board in self._boards:
            board.add_text(name, content, step)

    def close(self) -> None:
        """Closes every board, whatever happens to one of them."""
        with contextlib.ExitStack() as stack:
            for board in self._boards:
                stack.callback(board.close)
