"""Contenders of a comparison, each in a process of its own, so that they share no threads, caches or peak memory.

They run in turns. `python -m benchmark.contenders NAME OPTIONS` is such a process: it sets itself up, warms up once
(which compiles), then runs once for every line on stdin and answers with a line of JSON.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pods_jax.cache import trim_after_compiling

Repetition = Callable[[], int]
"""Does the work once and returns its number of tokens."""

CONTENDERS = {
    "ours/sampler": "our_sampler:sampler",
    "ours/tails": "our_sampler:tails",
    "ours/update": "ours:update",
    "ours/step": "ours:step",
    "transformers/sampler": "peers:sampler",
    "transformers/tails": "peers:tails",
    "torch/update": "peers:update",
    "trl/step": "trl_step:step",
}
"""Name to "module:function" in this package; the function takes options and returns a Repetition."""

Turn = Mapping[str, int | float]
"""One repetition: "seconds", "cpu_seconds" of all threads, "tokens", and the process's "peak_bytes" of memory so far.
Processor seconds tell contenders apart on a machine that others use too, where the clock does not."""


class Result(NamedTuple):
    """Medians over a contender's repetitions, and the peak of its process's resident memory."""

    seconds: float
    cpu_seconds: float
    tokens_per_s: float
    peak_bytes: int


Outcome = Result | str
"""A contender's result, or the reason why it has none."""


class Ended(Exception):
    """A contender's process ended before it answered; its messages are on stderr."""


class Contender:
    """A process that waits for its turns.

    Raises:
      Ended: the process is no more.
    """

    def __init__(self, name: str, options: Mapping[str, Any]):
        command = [sys.executable, "-m", __name__, name, json.dumps(options)]
        paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
        )
        self._answer()  # warm

    def turn(self) -> Turn:
        """One repetition."""
        with contextlib.suppress(BrokenPipeError):  # it ended between its turns, which `_answer` tells
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Turn:
        line = self._process.stdout.readline()
        if not line:
            raise Ended(_manner(self._process.wait()))
        return json.loads(line)


def _manner(code: int) -> str:
    """An end in words. Nobody but the kernel, which is out of memory, sends SIGKILL to a contender."""
    return "killed (out of memory)" if code == -signal.SIGKILL else f"ended with exit code {code}"


def compare(options: Mapping[str, Mapping[str, Any]], repeats: int) -> dict[str, Outcome]:
    """An outcome for every label: one that ends before its last turn leaves the others to go on.

    options: by label, those of a contender, whose name is the option "contender".
    """
    turns: dict[str, list[Turn]] = {label: [] for label in options}
    ended: dict[str, str] = {}
    contenders: dict[str, Contender] = {}
    with contextlib.ExitStack() as stack:
        for label, chosen in options.items():
            with _noting_end(ended, label):
                contenders[label] = stack.enter_context(contextlib.closing(Contender(chosen["contender"], chosen)))
        for label in [*contenders] * repeats:
            if label not in ended:
                with _noting_end(ended, label):
                    turns[label].append(contenders[label].turn())
    return {label: ended[label] if label in ended else summarise(turns[label]) for label in options}


@contextlib.contextmanager
def _noting_end(ended: dict[str, str], label: str) -> Iterator[None]:
    """Puts the manner of a contender's end into `ended`."""
    try:
        yield
    except Ended as manner:
        ended[label] = str(manner)


def summarise(turns: Sequence[Turn]) -> Result:
    return Result(
        seconds=statistics.median(t["seconds"] for t in turns),
        cpu_seconds=statistics.median(t["cpu_seconds"] for t in turns),
        tokens_per_s=statistics.median(t["tokens"] / t["seconds"] for t in turns),
        peak_bytes=int(max(t["peak_bytes"] for t in turns)),
    )


STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """The most memory that this process has held, resident.

    On Linux `getrusage` tells at least what the process that started this one held, which may be more.
    """
    if STATUS.is_file():
        [line] = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


OOM_SCORE = Path("/proc/self/oom_score_adj")


def go_first_when_memory_ends() -> None:
    """Asks Linux to end this process rather than the command that measures it."""
    with contextlib.suppress(OSError):  # other systems have no such file
        OOM_SCORE.write_text("1000")


def main() -> None:
    """The process of one contender. Whatever it prints goes to stderr; stdout is for answers."""
    name = sys.argv[1]
    options = json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    go_first_when_memory_ends()
    if name.startswith("ours/"):
        trim_after_compiling()  # as the command lines do
    module, _, function = CONTENDERS[name].partition(":")
    repetition = getattr(importlib.import_module(f"benchmark.{module}"), function)(options)

    def answer() -> None:
        start = time.perf_counter()
        start_cpu = time.process_time()
        tokens = repetition()
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - start_cpu
        turn = {"seconds": seconds, "cpu_seconds": cpu_seconds, "tokens": tokens, "peak_bytes": peak_bytes()}
        print(json.dumps(turn), file=answers, flush=True)

    answer()
    for _ in sys.stdin:
        answer()


if __name__ == "__main__":
    main()
