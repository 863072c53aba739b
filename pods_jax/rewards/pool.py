"""`RewardPool`: verifies batches of outputs, each within a time limit, whatever the verifiers do.

Bounded verifiers, and the quick first layers of others (see `Verifier`), run in the caller's process. The rest runs in
worker processes, which are started when first needed, reused, and replaced when they hang or die. Workers are new
interpreters. They are not forked, since JAX has threads, nor started through `multiprocessing`, which imports the
caller's `__main__`, and JAX with it, into each. A worker gets a few outputs at a time, and replies to them one by one.
Requests and replies are numbered, so that nothing else in the pipe is taken for a verdict.

The limit is on processor time, since a loaded or frozen machine must not change verdicts. A verifier that only waits
uses none: the wall clock ends it after `WALL_FACTOR` times the limit.
"""

import collections
import contextlib
import functools
import itertools
import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from pods_jax.errors import UserError
from pods_jax.rewards.callables import find_verifier
from pods_jax.rewards.verdict import Verdict

START_UP_S = 120.0
MAX_STARTS = 4
WALL_FACTOR = 10
"""The wall-clock limit of a verification, as a multiple of its limit of processor time."""
TIMEOUT = Verdict(False, None, "timeout")
WALL_TIMEOUT = Verdict(False, None, "wall timeout")
CRASHED = Verdict(False, None, "crashed")
CLOSED = Verdict(False, None, "closed")

# Waiting data never fills a pipe, so that no process waits for the other one to read.
MAX_CHUNK_BYTES = 32 << 10
MAX_CHUNK_ITEMS = 32

_COMMAND = (sys.executable, "-m", "pods_jax.rewards.worker")
_LOOK_AFTER_S = 0.5
_log = logging.getLogger(__name__)
_warn_once = functools.lru_cache(maxsize=256)(_log.warning)


class RewardPool:
    """Verifies up to `num_workers` outputs at a time. Any thread may call it; `with` or `close` ends its workers."""

    def __init__(self, num_workers: int = 2):
        self._process_id = os.getpid()
        self._troubles = Troubles()
        self._workers = [Worker() for _ in range(num_workers)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="reward")
        self._finalizer = weakref.finalize(self, _close, self._process_id, self._threads, self._workers)

    def score(
        self,
        outputs: Sequence[str],
        golds: Sequence[str],
        task: str,
        deadline_s: float | int = 5.0,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> list[Verdict]:
        """Verdicts in the order of the outputs. A line in the log says when many of them are none (see `note`).

        An output gets the reason "timeout" if its verifier uses more than `deadline_s` of processor time, "wall
        timeout" if the verifier waits for `WALL_FACTOR` times as long, "crashed" if the verifier raises or dies, and
        "closed" if the pool is closed first. None of these affects other outputs. The start of a worker takes nothing
        from the limit.

        Args:
          columns: further arguments by name, with an entry for each output, for tasks that are user's functions.

        Raises:
          UserError: the task is unknown, the verifier cannot use a gold, or no worker can load the verifier.
          RuntimeError: the pool is closed, or belongs to the parent of this forked process.
        """
        verdicts = self.verdicts(outputs, golds, task, deadline_s, columns)
        self.note(task, verdicts)
        return verdicts

    def verdicts(
        self,
        outputs: Sequence[str],
        golds: Sequence[str],
        task: str,
        deadline_s: float | int = 5.0,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> list[Verdict]:
        """`score`, without a line in the log."""
        if os.getpid() != self._process_id:
            raise RuntimeError("a RewardPool belongs to the process that made it: make another one in a forked child")
        verifier = find_verifier(task)
        pairs = list(zip(outputs, golds, strict=True))
        first_layer = verifier.verify if verifier.bounded else verifier.quick
        verdicts = [first_layer(output, gold) for output, gold in pairs]
        undecided = [place for place, verdict in enumerate(verdicts) if verdict is None]
        rows = _rows(columns or {}, undecided) if verifier.takes_columns else itertools.repeat(None)
        limits = {"limit_s": deadline_s, "wall_limit_s": WALL_FACTOR * deadline_s}
        requests = [
            {"verify": task, "output": pairs[place][0], "gold": pairs[place][1], "columns": row} | limits
            for place, row in zip(undecided, rows, strict=False)
        ]
        chunks = _chunks(list(map(Message, requests)), len(self._workers))
        verified = self._threads.map(lambda chunk: self._verify(task, chunk, deadline_s), chunks)
        for place, verdict in zip(undecided, itertools.chain.from_iterable(verified), strict=True):
            verdicts[place] = verdict
        return verdicts

    def note(self, task: str, verdicts: Sequence[Verdict]) -> None:
        """Logs a line when many of a task's verdicts are none, and another when this changes."""
        self._troubles.note(task, verdicts)

    def close(self) -> None:
        """Ends the workers at once; outputs that other threads are verifying get "closed"."""
        self._finalizer()

    def __enter__(self) -> "RewardPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _verify(self, task: str, requests: "Sequence[Message]", deadline_s: float | int) -> list[Verdict]:
        worker = self._idle.get()
        try:
            return worker.verify(task, requests, deadline_s)
        finally:
            self._idle.put(worker)


def _rows(columns: Mapping[str, Sequence[Any]], places: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The entries of all columns at each place."""
    return ({name: values[place] for name, values in columns.items()} for place in places)


class Message:
    """A message to a worker, with a number that is unique in this process.

    Attributes:
      number: its number, which the reply repeats.
      line: the line that is sent.
    """

    _numbers = itertools.count(1)

    def __init__(self, content: Mapping[str, Any]):
        self.number = next(self._numbers)
        self.line = json.dumps({"number": self.number} | dict(content), default=str).encode() + b"\n"


def _chunks(requests: Sequence[Message], num_workers: int) -> Iterator[list[Message]]:
    """Consecutive requests, as many as fit into a pipe and leave work for every worker; a large one is sent singly."""
    most = max(1, min(MAX_CHUNK_ITEMS, len(requests) // (2 * num_workers)))
    chunk: list[Message] = []
    for request in requests:
        size = sum(len(other.line) for other in chunk) + len(request.line)
        if chunk and (len(chunk) == most or size > MAX_CHUNK_BYTES):
            yield chunk
            chunk = []
        chunk.append(request)
    if chunk:
        yield chunk


def _close(process_id: int, threads: ThreadPoolExecutor, workers: Sequence["Worker"]) -> None:
    if os.getpid() != process_id:  # a forked child has neither the threads nor the workers
        return
    threads.shutdown(wait=False)  # no further chunk is begun,
    for worker in workers:
        worker.close()  # and the threads that wait for a reply get none,
    threads.shutdown(wait=True)  # so that this returns soon
    for worker in workers:
        worker.stop()


# ---------------------------------------------------------------- troubles


class Troubles:
    """Logs one line when many outputs of a task get no verdict, and another when this changes."""

    WINDOW = 256
    SHARE = 0.03

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: dict[str, list[str]] = {}
        self._told: dict[str, tuple[str, ...]] = {}

    def note(self, task: str, verdicts: Sequence[Verdict]) -> None:
        """Counts verdicts. Once there are `WINDOW` of them, it logs any change and starts counting again."""
        with self._lock:
            recent = self._recent.setdefault(task, [])
            recent += [verdict.reason for verdict in verdicts]
            if len(recent) >= self.WINDOW:
                self._tell(task, collections.Counter(recent), len(recent))
                recent.clear()

    def _tell(self, task: str, reasons: collections.Counter, total: int) -> None:
        kinds = (TIMEOUT.reason, WALL_TIMEOUT.reason, CRASHED.reason)
        troubles = tuple(kind for kind in kinds if reasons[kind] > self.SHARE * total)
        if troubles == self._told.get(task, ()):
            return
        self._told[task] = troubles
        shares = ", ".join(f"{reasons[kind] / total:.1%} {kind}" for kind in troubles)
        if troubles:
            _log.warning("verifier of task '%s': of the last %d outputs %s; they count as wrong", task, total, shares)
        else:
            _log.warning("verifier of task '%s': verdicts on nearly all of the last %d outputs again", task, total)


# ---------------------------------------------------------------- one worker


class WorkerLost(Exception):
    """The worker process gave no reply. The argument is the verdict on the output that it was verifying."""

    def __init__(self, verdict: Verdict):
        super().__init__(verdict.reason)
        self.verdict = verdict


class Closed(Exception):
    """The worker was closed, and no longer starts a process."""


class Worker:
    """One worker process and its replacements. One thread at a time may call it, except for `close`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._prepared: set[str] = set()
        self._unread = b""

    def verify(self, task: str, requests: Sequence[Message], deadline_s: float | int) -> list[Verdict]:
        """The verdicts. A process loads the task's verifier before the clock starts."""
        verdicts: list[Verdict] = []
        with contextlib.suppress(Closed):
            while len(verdicts) < len(requests):
                self._prepare(task)
                self._add_verdicts(verdicts, task, requests[len(verdicts) :], WALL_FACTOR * deadline_s)
        return verdicts + [CLOSED] * (len(requests) - len(verdicts))

    def _add_verdicts(
        self, verdicts: list[Verdict], task: str, requests: Sequence[Message], limit_s: float | int
    ) -> None:
        """Adds verdicts up to and including the first one to which the process did not reply."""
        try:
            self._send(b"".join(request.line for request in requests), limit_s)
            for request in requests:
                verdicts.append(self._verdict(task, *self._receive(request.number, limit_s)))
        except WorkerLost as lost:
            verdicts.append(lost.verdict)

    def _verdict(self, task: str, kind: str, content: Any) -> Verdict:
        if kind == "user error":
            self.stop()  # and its remaining replies, which nobody reads
            raise UserError(content)
        if kind == "exception":
            _warn_once("the verifier of task '%s' raised %s", task, content)
            return CRASHED
        return Verdict(**content)

    def close(self) -> None:
        """Ends the process at once; no other is started, not even for a thread that waits for a reply."""
        with self._starting:
            self._closed = True
            self._kill()

    def stop(self) -> None:
        """Ends the process, and closes its pipes."""
        if self._process is None:
            return
        self._kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # from a request that it never read
            self._process.stdin.close()
        self._process.stdout.close()
        self._process = None

    def _kill(self) -> None:
        """Ends the process and everything that a verifier has forked: together they are a process group."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def _prepare(self, task: str) -> None:
        for start in itertools.count(1):
            try:
                return self._make_ready(task)
            except WorkerLost as lost:
                if start == MAX_STARTS or lost.verdict is not CRASHED:
                    why = f"{lost}, {start} times" if start > 1 else lost
                    command = " ".join(_COMMAND)
                    raise UserError(f"the reward worker did not start ({why}); `{command}` shows why") from lost

    def _make_ready(self, task: str) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()
        if task in self._prepared:
            return
        module = find_verifier(task).verify.__module__
        if module == "__main__":
            raise UserError(f"the verifier of task '{task}' is defined in __main__: workers need it in a module")
        request = Message({"prepare": task, "module": module})
        self._send(request.line, START_UP_S)
        kind, content = self._receive(request.number, START_UP_S)
        if kind != "ready":
            raise UserError(f"task '{task}': {content}")
        self._prepared.add(task)

    def _start(self) -> None:
        self.stop()
        self._prepared.clear()
        with self._starting:
            if self._closed:
                raise Closed
            self._process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the parent; and a verifier's forks can be ended too
                bufsize=0,
            )
        os.set_blocking(self._process.stdin.fileno(), False)  # a worker that does not read must not hold the caller
        self._writable = select.poll()
        self._writable.register(self._process.stdin, select.POLLOUT)
        self._readable = select.poll()
        self._readable.register(self._process.stdout, select.POLLIN)
        self._unread = b""

    def _send(self, requests: bytes, limit_s: float | int) -> None:
        """Writes the requests. A process that does not take them in time is stopped."""
        end = time.monotonic() + limit_s
        data = memoryview(requests)
        while data:
            self._wait(self._writable, end)
            try:
                data = data[self._process.stdin.write(data) or 0 :]
            except BrokenPipeError:
                self._lose(self._reason_of_death())

    def _receive(self, number: int, limit_s: float | int) -> tuple[str, Any]:
        """The kind and content of the reply with that number; everything else in the pipe is skipped."""
        end = time.monotonic() + limit_s
        while True:
            reply = _parsed(self._line(end))
            if reply is not None and reply[0] == number:
                return reply[1], reply[2]

    def _line(self, end: float | int) -> bytes:
        while b"\n" not in self._unread:
            self._wait(self._readable, end)
            read = self._process.stdout.read(1 << 16)
            if not read:
                self._lose(self._reason_of_death())
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _wait(self, pipe: Any, end: float | int) -> None:
        """Returns when the pipe is ready. It also watches the process, whose children may keep the pipe open."""
        while not pipe.poll(1000 * max(0.0, min(_LOOK_AFTER_S, end - time.monotonic()))):
            if self._process.poll() is not None:
                self._lose(self._reason_of_death())
            if time.monotonic() >= end:
                self._lose(WALL_TIMEOUT)

    def _reason_of_death(self) -> Verdict:
        """The verdict for a process that closed its pipe: SIGPROF comes from the worker's timer."""
        self._kill()
        return TIMEOUT if self._process.wait() == -signal.SIGPROF else CRASHED

    def _lose(self, verdict: Verdict) -> NoReturn:
        self.stop()
        if self._closed:
            raise Closed
        raise WorkerLost(verdict)


def _parsed(line: bytes) -> tuple[Any, Any, Any] | None:
    """The three parts of a reply; None for any other line."""
    try:
        number, kind, content = json.loads(line)
    except (ValueError, TypeError):
        return None
    return number, kind, content


def _environment() -> dict[str, str]:
    """The caller's environment variables, with its module search path, and one thread for linear algebra."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
