"""Signals that end a run: after the step at hand, or at once where there is nothing to save."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import jax

from pods_jax.parallel.hosts import exchange

GRACE_S = 1.0
"""Seconds that a run has to leave what it does at once, before its process is ended. A compiler hears no signal."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal that came while there was nothing to save; its text is the signal's name."""


class StopRequest:
    """Inside `with`, SIGTERM, SIGHUP (a closed terminal) and the first SIGINT are noted; a second SIGINT interrupts.

    A thread says so on stderr, since the main one may be inside a compiler for minutes. In a thread that is not the
    process's main one, where signals cannot be caught, nothing changes.
    """

    def __init__(self, exit_code: int | None = None):
        """exit_code: of the process, which is ended if it does not stop within GRACE_S where it must stop at once.

        It is 130 after a second SIGINT. None: the process is the caller's, and goes on.
        """
        self._exit_code = exit_code
        self._signal: str | None = None
        self._at_once = False
        self._before = {}
        self._left = threading.Event()

    def signal(self) -> str | None:
        """The name of the signal that came to any of the processes that work together, None before; all must ask."""
        return next(filter(None, exchange([self._signal])), None)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises `Stopped`: there is nothing to save. Of several processes none can leave the others.

        Raises:
          Stopped: a signal came, here or before.
        """
        self._at_once = jax.process_count() == 1
        if self._at_once and self._signal:
            raise Stopped(self._signal)
        yield
        self._at_once = False

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            reader, self._wakeup = os.pipe()
            os.set_blocking(self._wakeup, False)
            self._watcher = threading.Thread(target=self._watch, args=(reader,), name="signals", daemon=True)
            self._watcher.start()
            self._wakeup_before = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
            heard = (s for s in _SIGNALS if signal.getsignal(s) != signal.SIG_IGN)  # nohup ignores SIGHUP
            self._before = {s: signal.signal(s, self._note) for s in heard}
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._wakeup)
            self._watcher.join(GRACE_S)  # it answers what came last; where stderr is read no more, it may never

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name
        if signal.SIGINT in self._before:
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])
        if self._at_once:
            raise Stopped(self._signal)

    def _watch(self, reader: int) -> None:
        """Answers each signal when it comes."""
        came = 0
        while numbers := os.read(reader, 64):
            for number in filter(self._before.__contains__, numbers):
                came += 1
                self._answer(number, again=came > 1)
        os.close(reader)

    def _answer(self, number: int, again: bool) -> None:
        insists = again and number == signal.SIGINT
        now = self._at_once or insists
        saying = "stopping" if now else "finishing the step, then saving (Ctrl-C: stopping at once)"
        with contextlib.suppress(OSError):  # where `tee` reads stderr, Ctrl-C has ended it already
            os.write(2, f"\n{signal.Signals(number).name}: {saying}\n".encode())
        if now and self._exit_code is not None and not self._left.wait(GRACE_S):
            os._exit(130 if insists else self._exit_code)
