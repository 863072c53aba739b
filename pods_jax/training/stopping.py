"""SIGTERM and Ctrl-C end a run between two steps."""

import os
import signal
import threading
from types import FrameType

from pods_jax.parallel.hosts import exchange


class StopRequest:
    """Inside `with`, SIGTERM and the first SIGINT are noted; a second SIGINT interrupts as usual.

    In a thread that is not the process's main one, where signals cannot be caught, nothing changes.
    """

    def __init__(self):
        self._signal: str | None = None
        self._before = {}

    def signal(self) -> str | None:
        """The name of the signal that came to any of the processes that work together, None before; all must ask."""
        return next(filter(None, exchange([self._signal])), None)

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._note) for s in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name
        os.write(2, f"\n{self._signal}: finishing the step, then saving\n".encode())
        signal.signal(signal.SIGINT, self._before[signal.SIGINT])
