"""`RewardPool`: verifies batches of outputs, each under a deadline, whatever the verifiers do.

Bounded verifiers (see `Verifier`) run in the caller's process. The others run in worker processes, which are started
when first needed, reused, and replaced when they hang or die. Workers are new interpreters, neither forked (JAX has
threads) nor started through `multiprocessing` (which imports the caller's `__main__`, and JAX with it, into each).
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import VERIFIERS, Verdict

START_UP_S = 120.0
TIMEOUT = Verdict(False, None, "timeout")
CRASHED = Verdict(False, None, "crashed")

_COMMAND = (sys.executable, "-m", "pods_jax.rewards.worker")
_warn_once = functools.lru_cache(maxsize=256)(logging.getLogger(__name__).warning)


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a pool has done so far: outputs scored, and how many of them hit the deadline or broke their verifier."""

    scored: int = 0
    timeouts: int = 0
    crashes: int = 0


class RewardPool:
    """Verifies outputs, up to `num_workers` at a time. Any thread may call it; `with` or `close` ends its workers.

    Attributes:
      counts: the totals over all calls of `score`.
    """

    def __init__(self, num_workers: int = 2):
        self.counts = Counts()
        self._counts_lock = threading.Lock()
        self._workers = [Worker() for _ in range(num_workers)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="reward")
        self._finalizer = weakref.finalize(self, _close, self._threads, self._workers)

    def score(
        self, outputs: Sequence[str], golds: Sequence[str], task: str, deadline_s: float | int = 5.0
    ) -> list[Verdict]:
        """Verdicts in the order of the outputs.

        An output that keeps its verifier busy for more than `deadline_s` gets "timeout"; one that makes it raise or
        die gets "crashed". Neither affects the others. Starting a worker is not counted against a deadline.

        Raises:
          UserError: for an unknown task, a gold that the verifier cannot use, or a verifier that no worker can load.
        """
        verifier = VERIFIERS[task]
        pairs = list(zip(outputs, golds, strict=True))
        if verifier.bounded:
            verdicts = [verifier.judge(output, gold) for output, gold in pairs]
        else:
            verdicts = list(self._threads.map(lambda pair: self._judge(task, *pair, deadline_s), pairs))
        self._count(verdicts)
        return verdicts

    def close(self) -> None:
        """Ends the workers; outputs that are being scored in other threads get "crashed" or are cancelled."""
        self._finalizer()

    def __enter__(self) -> "RewardPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _judge(self, task: str, output: str, gold: str, deadline_s: float | int) -> Verdict:
        worker = self._idle.get()
        try:
            return worker.judge(task, output, gold, deadline_s)
        finally:
            self._idle.put(worker)

    def _count(self, verdicts: Sequence[Verdict]) -> None:
        reasons = Counter(verdict.reason for verdict in verdicts)
        with self._counts_lock:
            self.counts = Counts(
                self.counts.scored + len(verdicts),
                self.counts.timeouts + reasons[TIMEOUT.reason],
                self.counts.crashes + reasons[CRASHED.reason],
            )


def _close(threads: ThreadPoolExecutor, workers: Sequence["Worker"]) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()
    threads.shutdown(wait=True)
    for worker in workers:
        worker.stop()


class WorkerLost(Exception):
    """The worker process gave no reply; the argument is the verdict on what it was asked."""

    def __init__(self, verdict: Verdict):
        super().__init__(verdict.reason)
        self.verdict = verdict


class Worker:
    """One worker process and its replacements. One thread at a time may call it, except for `kill`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._prepared: set[str] = set()

    def judge(self, task: str, output: str, gold: str, deadline_s: float | int) -> Verdict:
        """The verdict on one output, in a process that was made ready for the task before the clock starts."""
        self._prepare(task)
        request = {"judge": task, "output": output, "gold": gold, "deadline_s": deadline_s}
        try:
            kind, content = self._ask(request, deadline_s)
        except WorkerLost as lost:
            return lost.verdict
        if kind == "user error":
            raise UserError(content)
        if kind == "exception":
            _warn_once("the verifier of task '%s' raised %s", task, content)
            return CRASHED
        return Verdict(**content)

    def kill(self) -> None:
        """Ends the process at once; a thread that waits for its reply sees it die."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """Ends the process and leaves nothing of it behind."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # from a request that it never read
            self._process.stdin.close()
        self._process.stdout.close()
        self._process = None

    def _prepare(self, task: str) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()
        if task in self._prepared:
            return
        module = VERIFIERS[task].judge.__module__
        if module == "__main__":
            raise UserError(f"the verifier of task '{task}' is defined in __main__: workers need it in a module")
        try:
            kind, content = self._ask({"prepare": task, "module": module}, START_UP_S)
        except WorkerLost as lost:
            raise UserError(f"the reward worker did not start ({lost}); `{' '.join(_COMMAND)}` shows why") from lost
        if kind != "ready":
            raise UserError(f"task '{task}': {content}")
        self._prepared.add(task)

    def _start(self) -> None:
        self.stop()
        self._prepared.clear()
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the parent
        )

    def _ask(self, request: dict[str, Any], deadline_s: float | int) -> tuple[str, Any]:
        """One request and its reply. If there is none in time the process is stopped."""
        process, expired = self._process, threading.Event()
        timer = threading.Timer(deadline_s, lambda: (expired.set(), process.kill()))
        timer.start()
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
            timer.join()
        if expired.is_set() or not line.endswith(b"\n"):
            self.stop()
            raise WorkerLost(TIMEOUT if expired.is_set() else CRASHED)
        return tuple(json.loads(line))


def _environment() -> dict[str, str]:
    """The caller's, with its module search path, and one thread for each worker's linear algebra."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
