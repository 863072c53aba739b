"""`RewardPool`: verifies batches of outputs, each under a deadline, whatever the verifiers do.

Bounded verifiers, and the quick first layers of others (see `Verifier`), run in the caller's process. The rest runs in
worker processes, which are started when first needed, reused, and replaced when they hang or die. Workers are new
interpreters, neither forked (JAX has threads) nor started through `multiprocessing` (which imports the caller's
`__main__`, and JAX with it, into each). A worker is sent a few outputs at a time, and answers one by one.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import os
import queue
import select
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from pods_jax.errors import UserError
from pods_jax.rewards.callables import find_verifier
from pods_jax.rewards.verdict import Verdict

START_UP_S = 120.0
TIMEOUT = Verdict(False, None, "timeout")
CRASHED = Verdict(False, None, "crashed")

# What waits in a pipe is less than its capacity, so that no process ever waits for the other one to read.
MAX_CHUNK_BYTES = 32 << 10
MAX_CHUNK_ITEMS = 32

Pair = tuple[str, str]

_COMMAND = (sys.executable, "-m", "pods_jax.rewards.worker")
_warn_once = functools.lru_cache(maxsize=256)(logging.getLogger(__name__).warning)


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a pool has done so far.

    Attributes:
      scored: outputs in all.
      timeouts, crashes: those that hit the deadline, or broke their verifier.
      no_answer: those that commit to no answer.
      unparsed: those whose answer the verifier cannot read.
    """

    scored: int = 0
    timeouts: int = 0
    crashes: int = 0
    no_answer: int = 0
    unparsed: int = 0


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
        verifier = find_verifier(task)
        pairs = list(zip(outputs, golds, strict=True))
        first_layer = verifier.judge if verifier.bounded else verifier.quick
        verdicts = [first_layer(output, gold) for output, gold in pairs]
        undecided = [place for place, verdict in enumerate(verdicts) if verdict is None]
        requests = list(_requests(task, (pairs[place] for place in undecided), deadline_s))
        chunks = _chunks(requests, len(self._workers))
        judged = self._threads.map(lambda chunk: self._judge(task, chunk, deadline_s), chunks)
        for place, verdict in zip(undecided, itertools.chain.from_iterable(judged), strict=True):
            verdicts[place] = verdict
        self._count(verdicts)
        return verdicts

    def close(self) -> None:
        """Ends the workers; outputs that are being scored in other threads get "crashed" or are cancelled."""
        self._finalizer()

    def __enter__(self) -> "RewardPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _judge(self, task: str, requests: Sequence[bytes], deadline_s: float | int) -> list[Verdict]:
        worker = self._idle.get()
        try:
            return worker.judge(task, requests, deadline_s)
        finally:
            self._idle.put(worker)

    def _count(self, verdicts: Sequence[Verdict]) -> None:
        reasons = Counter(verdict.reason for verdict in verdicts)
        with self._counts_lock:
            self.counts = Counts(
                self.counts.scored + len(verdicts),
                self.counts.timeouts + reasons[TIMEOUT.reason],
                self.counts.crashes + reasons[CRASHED.reason],
                self.counts.no_answer + reasons["no answer"],
                self.counts.unparsed + reasons["unparsed"],
            )


def _requests(task: str, pairs: Iterable[Pair], deadline_s: float | int) -> Iterator[bytes]:
    for output, gold in pairs:
        request = {"judge": task, "output": output, "gold": gold, "deadline_s": deadline_s}
        yield json.dumps(request).encode() + b"\n"


def _chunks(requests: Sequence[bytes], num_workers: int) -> Iterator[list[bytes]]:
    """Consecutive requests, as many as fit into a pipe and leave work for every worker; a large one travels alone."""
    most = max(1, min(MAX_CHUNK_ITEMS, len(requests) // (2 * num_workers)))
    chunk: list[bytes] = []
    for request in requests:
        if chunk and (len(chunk) == most or sum(map(len, chunk)) + len(request) > MAX_CHUNK_BYTES):
            yield chunk
            chunk = []
        chunk.append(request)
    if chunk:
        yield chunk


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
        self._unread = b""

    def judge(self, task: str, requests: Sequence[bytes], deadline_s: float | int) -> list[Verdict]:
        """The verdicts, in processes that were made ready for the task before the clock starts."""
        verdicts: list[Verdict] = []
        while len(verdicts) < len(requests):
            self._prepare(task)
            verdicts += self._verdicts(task, requests[len(verdicts) :], deadline_s)
        return verdicts

    def _verdicts(self, task: str, requests: Sequence[bytes], deadline_s: float | int) -> Iterator[Verdict]:
        """Verdicts up to and including the first for which the process did not reply."""
        try:
            self._send(b"".join(requests), deadline_s)
            for _ in requests:
                yield self._verdict(task, *self._receive(deadline_s))
        except WorkerLost as lost:
            yield lost.verdict

    def _verdict(self, task: str, kind: str, content: Any) -> Verdict:
        if kind == "user error":
            self.stop()  # with the replies that nobody will read
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
        module = find_verifier(task).judge.__module__
        if module == "__main__":
            raise UserError(f"the verifier of task '{task}' is defined in __main__: workers need it in a module")
        try:
            self._send(json.dumps({"prepare": task, "module": module}).encode() + b"\n", START_UP_S)
            kind, content = self._receive(START_UP_S)
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
            bufsize=0,
        )
        os.set_blocking(self._process.stdin.fileno(), False)
        self._writable, self._readable = select.poll(), select.poll()
        self._writable.register(self._process.stdin, select.POLLOUT)
        self._readable.register(self._process.stdout, select.POLLIN)
        self._unread = b""

    def _send(self, requests: bytes, deadline_s: float | int) -> None:
        """Writes the requests. If the process does not take them in time it is stopped."""
        end, data = time.monotonic() + deadline_s, memoryview(requests)
        while data:
            if not self._writable.poll(1000 * max(0.0, end - time.monotonic())):
                self._lose(TIMEOUT)
            try:
                data = data[self._process.stdin.write(data) or 0 :]
            except BrokenPipeError:
                self._lose(CRASHED)

    def _receive(self, deadline_s: float | int) -> tuple[str, Any]:
        """The next reply. If there is none in time the process is stopped."""
        end = time.monotonic() + deadline_s
        while b"\n" not in self._unread:
            if not self._readable.poll(1000 * max(0.0, end - time.monotonic())):
                self._lose(TIMEOUT)
            read = self._process.stdout.read(1 << 16)
            if not read:
                self._lose(CRASHED)
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return tuple(json.loads(line))

    def _lose(self, verdict: Verdict) -> NoReturn:
        self.stop()
        raise WorkerLost(verdict)


def _environment() -> dict[str, str]:
    """The caller's, with its module search path, and one thread for each worker's linear algebra."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
