"""Processes that make runs, several each, so that runs which differ in nothing but their seed compile once."""

import contextlib
import json
import os
import queue
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from pods_jax import processor
from pods_jax.errors import UserError
from pods_jax.io import make_folder
from pods_jax.training.sweep import SweepRun

SCRIPT = Path(__file__).with_name("worker.py")


class Worker:
    """A process on some of the cores, which starts with its first run, and anew with the next one if it dies."""

    def __init__(self, cores: Sequence[int]):
        self._cores = cores
        self._process: subprocess.Popen | None = None

    def make(self, run: SweepRun) -> str | None:
        """Makes a run; returns what went wrong, or None."""
        make_folder(run.workdir, "workdir")
        job = {"spec": run.spec, "overrides": run.all_overrides, "workdir": str(run.workdir)}
        process = self._process or self._start()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if answer:
            return json.loads(answer)
        self._process = None
        return f"exit code {process.wait()} of the process that made it"

    def _start(self) -> subprocess.Popen:
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen([sys.executable, str(SCRIPT)], stdin=pipe, stdout=pipe, text=True)
        if processor.can_pin():
            os.sched_setaffinity(process.pid, self._cores)  # before it starts threads, which inherit it
        return process

    def end(self) -> None:
        """Ends the process; a run that is under way is saved first, and goes on another time."""
        if self._process:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.terminate()


def check(count: int) -> None:
    """UserError: there are fewer cores than workers."""
    cores = len(processor.cores())
    if not 1 <= count <= cores:
        raise UserError(f"--workers {count}: there are {cores} cores")


class Workers:
    """Some workers, each with an equal share of the cores. As a context manager: ends them at the end."""

    def __init__(self, count: int):
        """UserError: there are fewer cores than workers."""
        check(count)
        cores = processor.cores()
        share = len(cores) // count
        self._all = [Worker(cores[i * share : (i + 1) * share]) for i in range(count)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_) -> None:
        self._end()

    def _end(self) -> None:
        for worker in self._all:
            worker.end()

    def run(self, runs: Sequence[SweepRun]) -> Generator[tuple[SweepRun, str | None], None, None]:
        """Yields each run when it is over, with what went wrong or None. Stopping early ends what still runs."""
        threads = ThreadPoolExecutor(len(self._all), thread_name_prefix="workers")
        try:
            futures = {threads.submit(self._one, run): run for run in runs}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            self._end()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def _one(self, run: SweepRun) -> str | None:
        worker = self._idle.get()
        try:
            return worker.make(run)
        finally:
            self._idle.put(worker)
