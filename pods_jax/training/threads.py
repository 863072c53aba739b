"""Threads that call functions for the training loop, and keep no process alive."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any


class DaemonThreads:
    """Inside `with`, `count` threads call functions, in the order in which they are submitted.

    After it they call what still waits, and end; an error drops this.

    A function of the user's may hang: an interrupted run does not wait for it, as it would for an executor's threads.
    """

    def __init__(self, count: int = 1) -> None:
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        self._count = count
        for _ in range(count):
            threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self) -> "DaemonThreads":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._drop()
        for _ in range(self._count):
            self._calls.put(None)

    def submit(self, function: Callable, *arguments: Any) -> Future:
        """The result of the call, in the future."""
        future: Future = Future()
        self._calls.put((future, function, arguments))
        return future

    def map(self, function: Callable, *columns: Iterable[Any]) -> list[Any]:
        """The results of calls with the columns' entries, in order. Raises what the first call that fails raised."""
        futures = [self.submit(function, *arguments) for arguments in zip(*columns, strict=True)]
        return [future.result() for future in futures]

    def _drop(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()[0].cancel()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, arguments = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)
