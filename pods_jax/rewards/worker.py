"""The process that runs verifiers for `RewardPool`: `python -m pods_jax.rewards.worker`.

It answers each line of JSON on stdin with one line of JSON on stdout, until stdin ends:

    {"prepare": task, "module": name}            -> ["ready", null]
    {"judge": task, "output", "gold", "deadline_s"} -> ["verdict", {"correct", "answer", "reason"}]

or ["user error", message] or ["exception", where it was raised]. JSON is written in ASCII, so that a line feed is
always the end of a message.
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
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def main() -> None:
    """Serves requests until stdin ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # clusters send it to all processes; the run still needs verdicts
    if resource.getrlimit(resource.RLIMIT_AS) == UNLIMITED and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))
    requests, replies = _take_over_stdio()
    for line in requests:
        replies.write(json.dumps(_reply(json.loads(line))).encode() + b"\n")
        replies.flush()


def _take_over_stdio() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes; afterwards a verifier that reads or prints reads nothing and prints to stderr."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, replies


def _reply(request: dict[str, Any]) -> tuple[str, Any]:
    try:
        return _prepare(request) if "prepare" in request else _judge(request)
    except UserError as error:
        return "user error", str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "exception", f"{type(error).__name__} in {frame.filename}:{frame.lineno}"


def _prepare(request: dict[str, Any]) -> tuple[str, None]:
    importlib.import_module(request["module"])
    find_verifier(request["prepare"]).prepare()
    return "ready", None


def _judge(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    # The parent keeps the deadline. This timer, whose default action is to end the process, is for orphans.
    signal.setitimer(signal.ITIMER_REAL, 2 * request["deadline_s"] + 1)
    try:
        verdict = find_verifier(request["judge"]).judge(request["output"], request["gold"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "verdict", vars(verdict)


if __name__ == "__main__":
    main()
