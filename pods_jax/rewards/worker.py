"""The process that runs verifiers for `RewardPool`: `python -m pods_jax.rewards.worker`.

It answers each line of JSON on stdin with one line of JSON on stdout, until stdin ends. A reply repeats the number of
its request:

    {"number": 1, "prepare": task, "module": name}                                  -> [1, "ready", null]
    {"number": 2, "verify": task, "output", "gold", "columns", "limit_s", "wall_limit_s"}
                                                      -> [2, "verdict", {"correct", "answer", "reason"}]

or [number, "user error", message] or [number, "exception", the place where it was raised]. JSON is written in ASCII, so
that a line feed always ends a message. A verification that uses more than `limit_s` of processor time ends the process
by SIGPROF, whatever it is doing.
"""

import importlib
import json
import os
import resource
import signal
import sys
import traceback
from typing import Any, BinaryIO

from pods_jax.errors import UserError
from pods_jax.rewards.callables import find_verifier

MEMORY_BYTES = 4 << 30
TIMERS = (signal.SIGPROF, signal.SIGALRM)
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def main() -> None:
    """Serves requests until stdin ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # clusters send it to all processes, but the run still needs verdicts
    for timer in TIMERS:
        signal.signal(timer, signal.SIG_DFL)  # a program passes on what it ignores and blocks, and profilers do both
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TIMERS)
    if resource.getrlimit(resource.RLIMIT_AS) == UNLIMITED and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))
    requests, replies = _take_over_stdio()
    process = os.getpid()
    for line in requests:
        request = json.loads(line)
        reply = (request["number"], *_reply(request))
        if os.getpid() != process:  # a verifier forked, and its child returned here too
            os._exit(0)
        # The first line feed ends anything that a verifier may have written into the pipe.
        replies.write(b"\n" + json.dumps(reply).encode() + b"\n")
        replies.flush()
    if os.getpgrp() == process:
        os.killpg(process, signal.SIGKILL)  # the pool's process is gone: what verifiers have forked goes too


def _take_over_stdio() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes. From then on a verifier reads nothing from stdin, and prints to stderr."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, replies


def _reply(request: dict[str, Any]) -> tuple[str, Any]:
    try:
        return _prepare(request) if "prepare" in request else _verify(request)
    except UserError as error:
        return "user error", str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "exception", f"{type(error).__name__} in {frame.filename}:{frame.lineno}"


def _prepare(request: dict[str, Any]) -> tuple[str, None]:
    importlib.import_module(request["module"])
    find_verifier(request["prepare"]).prepare()
    return "ready", None


def _verify(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    verifier = find_verifier(request["verify"])
    columns = () if request["columns"] is None else (request["columns"],)
    # Both timers end the process by default. The parent keeps the wall-clock limit; the second timer is for orphans.
    signal.setitimer(signal.ITIMER_PROF, request["limit_s"])
    signal.setitimer(signal.ITIMER_REAL, 2 * request["wall_limit_s"] + 1)
    try:
        verdict = verifier.verify(request["output"], request["gold"], *columns)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "verdict", vars(verdict)


if __name__ == "__main__":
    main()
