"""Many runs: configs x overrides x seeds, each a process with a workdir of its own.

What is finished is skipped, what was stopped goes on, and a run that fails stops no other.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from pods_jax import processor
from pods_jax.analysis.curves import half_width
from pods_jax.config.load import load_config
from pods_jax.errors import UserError
from pods_jax.io import make_folder, refuse_unwritable
from pods_jax.training.workdir import SUMMARY, ends_as, refuse_other_config

LOG = "log.txt"


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One run.

    Attributes:
      spec: "path/to/config.py[:argument]"; overrides: "section.key=value", the seed's apart.
      constants: further overrides, which all runs of a sweep share and whose names do not tell.
      workdir: ROOT/CONFIG-ARGUMENT[,key=value...]/seed=N.
    """

    spec: str
    overrides: tuple[str, ...]
    seed: int
    workdir: Path
    constants: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The name that runs of different seeds share."""
        return self.workdir.parent.name

    @property
    def name(self) -> str:
        return f"{self.group}/{self.workdir.name}"

    @property
    def all_overrides(self) -> tuple[str, ...]:
        return (*self.constants, *self.overrides, f"seed={self.seed}")

    def summary(self) -> dict[str, Any] | None:
        """The summary that the run wrote at its end; None before, and where its config has another end now."""
        file = self.workdir / SUMMARY
        return json.loads(file.read_text()) if file.is_file() and not self._goes_on() else None

    def _goes_on(self) -> bool:
        has_config = (self.workdir / "config.json").is_file()  # a script of one's own may leave none
        return has_config and not ends_as(self.workdir, load_config(self.spec, self.all_overrides))

    def state(self) -> str:
        """ "finished", "started" or "new"."""
        if self.summary() is not None:
            return "finished"
        return "started" if (self.workdir / "config.json").is_file() else "new"


# ---------------------------------------------------------------- the grid


def expand(
    specs: Sequence[str],
    settings: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    root: Path,
    constants: Sequence[str] = (),
) -> list[SweepRun]:
    """All runs, seed by seed, so that a sweep that is cut short has as many seeds of each config.

    Args:
      specs: configs. settings: by config key, the values it takes, as texts; all combinations are run.
      constants: overrides of all runs, which are no part of their names.

    Raises:
      UserError: two runs would share a workdir.
    """
    grids = [[f"{key}={value}" for value in values] for key, values in settings.items()]
    runs = [
        SweepRun(spec, overrides, seed, root / _group_name(spec, overrides) / f"seed={seed}", tuple(constants))
        for seed in seeds
        for spec in specs
        for overrides in itertools.product(*grids)
    ]
    name, count = Counter(run.name for run in runs).most_common(1)[0]
    if count > 1:
        raise UserError(f"{count} runs would have the workdir {name}: give each config once, under its own name")
    return runs


def _group_name(spec: str, overrides: Sequence[str]) -> str:
    path, _, argument = spec.partition(":")
    parts = [f"{Path(path).stem}-{argument}" if argument else Path(path).stem, *overrides]
    return re.sub(r"[^\w.,=+-]+", "_", ",".join(parts))


def parse_seeds(text: str) -> list[int]:
    """ "0-3,7" is 0, 1, 2, 3, 7. UserError for anything else."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise UserError(f"--seeds {text}: '{part}' is neither a number nor a range such as 0-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"--seeds {text}: '{part}' is a range without a seed; write the smaller number first")
        if last >= 2**32:
            raise UserError(f"--seeds {text}: {last} is not below 2^32 (random keys have 32 bits)")
        seeds += range(first, last + 1)
    if len(seeds) != len(set(seeds)) or not seeds:
        raise UserError(f"--seeds {text} names a seed twice, or none")
    return seeds


def parse_setting(text: str) -> tuple[str, list[str]]:
    """ "section.key=a,b" is the key and its values; commas in brackets or quotes separate nothing."""
    key, equals, values = text.partition("=")
    if not equals or not key or not values:
        raise UserError(f"--set {text}: write section.key=value[,value...]")
    found = _split(values)
    if not all(found):
        raise UserError(f"--set {text}: there is an empty value; write '' for an empty text")
    return key, found


def _split(text: str) -> list[str]:
    """What stands between commas, those in brackets and in quotes apart; a quote opens in brackets or at a start."""
    parts = [""]
    depth, quote = 0, ""
    for char in text:
        if char == "," and not depth and not quote:
            parts.append("")
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and (depth or not parts[-1].strip()):
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
        parts[-1] += char
    return [part.strip() for part in parts]


def check(runs: Sequence[SweepRun]) -> None:
    """Checks that every config is valid, that existing workdirs were made by it, and that no file is in their place.

    Raises:
      UserError: for the first run that is not so.
    """
    for run in runs:
        refuse_unwritable(run.workdir, "workdir")
        refuse_other_config(run.workdir, load_config(run.spec, run.all_overrides))


# ---------------------------------------------------------------- running


class Sweep:
    """Processes that work runs off, `workers` at a time, each on `cores_per_run` cores of its own if that is given."""

    def __init__(self, script: Path, workers: int = 1, cores_per_run: int | None = None):
        """script: a command line that takes --config, --workdir and --config.KEY=VALUE, as experiments/train.py.

        Raises:
          UserError: there are fewer cores, or the system cannot bind a process to some of them.
        """
        if cores_per_run is not None and not processor.can_pin():
            raise UserError("--cores-per-run: this system cannot bind a process to cores; Linux can")
        cores = processor.cores()
        if workers < 1 or (cores_per_run or 1) < 1 or workers * (cores_per_run or 0) > len(cores):
            raise UserError(f"{workers} worker(s) on {cores_per_run or 1} core(s) each: there are {len(cores)} cores")
        self._script = script
        self._workers = workers
        self._slots: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
        for worker in range(workers):
            size = cores_per_run or 0
            self._slots.put(set(cores[worker * size : (worker + 1) * size]) or set(cores))
        self._live: set[subprocess.Popen] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, runs: Sequence[SweepRun]) -> Generator[tuple[SweepRun, str | None], None, None]:
        """Yields each run when it is over, with what went wrong or None. Stopping early ends what still runs."""
        threads = ThreadPoolExecutor(self._workers, thread_name_prefix="sweep")
        try:
            futures = {threads.submit(self._one, run): run for run in runs}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            self._stop()
            threads.shutdown(cancel_futures=True)

    def _one(self, run: SweepRun) -> str | None:
        """Runs one to its end; returns what went wrong, or None."""
        make_folder(run.workdir, "workdir")
        log = run.workdir / LOG
        overrides = [f"--config.{o}" for o in run.all_overrides]
        command = [sys.executable, str(self._script), "--config", run.spec, "--workdir", str(run.workdir), *overrides]
        slot = self._slots.get()
        with open(log, "a") as output:
            code = self._process(command, output, slot)
        self._slots.put(slot)
        if code == 0 and run.summary() is not None:
            return None
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return f"exit code {code}: {lines[-1] if lines else 'no output'} ({log})"

    def _process(self, command: Sequence[str], output: Any, cores: set[int]) -> int:
        with self._lock:
            if self._stopped:
                return -1
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            self._live.add(process)
        if processor.can_pin():
            os.sched_setaffinity(process.pid, cores)  # before it starts threads, which inherit it
        code = process.wait()
        self._live.discard(process)
        return code

    def _stop(self) -> None:
        """Ends what still runs (nothing, unless the caller stopped early), and starts nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._live:
                process.terminate()


Runner = Callable[[Sequence[SweepRun]], Generator[tuple[SweepRun, str | None], None, None]]
"""Makes runs, as `Sweep.run` does; closing the generator ends the runs that are under way."""


def make(runner: Runner, runs: Sequence[SweepRun]) -> Iterator[tuple[SweepRun, str | None]]:
    """Yields each run, those that are finished already first, with what went wrong or None; prints a line for each.

    SIGTERM ends the runs that are under way too, which would outlive this process.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    todo = [run for run in runs if run.state() != "finished"]
    print(f"sweep    {len(runs)} run(s), {len(runs) - len(todo)} finished, {len(todo)} to do", flush=True)
    yield from ((run, None) for run in runs if run not in todo)
    start_s = time.perf_counter()
    with contextlib.closing(runner(todo)) as results:
        for done, (run, problem) in enumerate(results, start=1):
            minutes = (time.perf_counter() - start_s) / 60
            print(f"[{done}/{len(todo)}, {minutes:.1f} min] {run.name}: {problem or 'done'}", flush=True)
            yield run, problem


def work_off(runner: Runner, runs: Sequence[SweepRun]) -> dict[str, str]:
    """Makes what is not finished; returns what went wrong by run."""
    return {run.name: problem for run, problem in make(runner, runs) if problem}


# ---------------------------------------------------------------- results


def table(runs: Sequence[SweepRun], metric: str = "accuracy") -> dict[str, dict[str, float]]:
    """The number of finished runs, their means, and half-widths of Student's 95 % intervals, by group.

    metric: of the evaluation after the last step; `greedy_accuracy` where that is missing.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        summary = run.summary()
        groups.setdefault(run.group, []).extend([summary] if summary else [])
    return {name: _row(found, metric) for name, found in groups.items()}


def _row(summaries: Sequence[Mapping[str, Any]], metric: str) -> dict[str, float]:
    if not summaries:
        return {"finished": 0.0}
    after = np.array([s["after"].get(metric, s["after"].get("greedy_accuracy")) for s in summaries])
    seconds = np.array([s["wall_time_s"] for s in summaries])
    steps = np.array([s["steps"] for s in summaries])
    columns = {metric: after, "wall_time_s": seconds, "seconds_per_step": seconds / np.maximum(steps, 1)}
    row = {"finished": float(len(summaries))}
    for name, values in columns.items():
        row |= {name: float(values.mean()), f"{name}_half_width": float(half_width(values))}
    return row
