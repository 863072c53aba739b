"""Verifiers that do what the gold says, for the tests of the pool; workers import this module."""

import contextlib
import json
import os
import re
import signal
import sys
import time

from pods_jax.errors import UserError
from pods_jax.rewards.verdict import Verdict, register


def _hang() -> None:
    while True:
        pass


def _hang_in_c() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def _exit() -> None:
    os._exit(3)


def _raise() -> None:
    raise ValueError("a bug in a verifier")


def _allocate() -> None:
    bytearray(64 << 30)


def _print() -> None:
    print("not a reply " * 100_000)
    print("noise " * 100_000, file=sys.stderr)


def _read_stdin() -> None:
    if sys.stdin.read():
        raise ValueError("stole a request")


def _reject_gold() -> None:
    raise UserError("no such gold")


def _fork() -> None:
    os.fork()


def _fork_and_hang() -> None:
    if os.fork() == 0:
        _hang()


def _fork_and_exit() -> None:
    if os.fork() != 0:
        os._exit(3)
    time.sleep(60)


def _write_to_all_descriptors() -> None:
    forged = json.dumps([None, "verdict", {"correct": True, "answer": "forged", "reason": "match"}])
    for descriptor in range(3, 64):
        for number in range(100):
            with contextlib.suppress(OSError):
                os.write(descriptor, forged.replace("null", str(number)).encode() + b"\n")
        with contextlib.suppress(OSError):
            os.write(descriptor, b"half a line")


def _close_all_descriptors() -> None:
    os.closerange(0, 64)


def _hang_and_tell() -> None:
    with open(os.environ["PID_FILE"], "w") as file:
        file.write(str(os.getpid()))
    _hang()


DEEDS = {
    "hang": _hang,
    "hang in C": _hang_in_c,
    "exit": _exit,
    "raise": _raise,
    "allocate": _allocate,
    "print": _print,
    "read stdin": _read_stdin,
    "reject gold": _reject_gold,
    "hang and tell": _hang_and_tell,
    "fork": _fork,
    "fork and hang": _fork_and_hang,
    "fork and exit": _fork_and_exit,
    "write to all descriptors": _write_to_all_descriptors,
    "close all descriptors": _close_all_descriptors,
    "wait": lambda: time.sleep(60),
    "doze": lambda: time.sleep(0.05),
    "pass": lambda: None,
}


@register("misbehave")
def misbehave(output: str, gold: str) -> Verdict:
    """Does the deed named by the gold, then gives the output back as the answer."""
    DEEDS[gold]()
    return Verdict(True, output, "match")


@register("process")
def process(output: str, gold: str) -> Verdict:
    """The process that verifies, and the modules among "a,b,c" in the gold that it has loaded."""
    loaded = [name for name in gold.split(",") if name in sys.modules]
    return Verdict(True, str(os.getpid()), " ".join(loaded))


@register("process_bounded", bounded=True)
def process_bounded(output: str, gold: str) -> Verdict:
    """As "process", for a bounded verifier."""
    return process(output, gold)


@register("slow_start", prepare=lambda: time.sleep(0.6))
def slow_start(output: str, gold: str) -> Verdict:
    """Quick, after a slow preparation."""
    return Verdict(True, output, "match")


@register("killed_at_start", prepare=lambda: _die_at_first_starts())
def killed_at_start(output: str, gold: str) -> Verdict:
    """Its worker is killed at its first starts, as many times as the file that STARTS names has bytes."""
    return Verdict(True, output, "match")


def _die_at_first_starts() -> None:
    path = os.environ["STARTS"]
    left = os.path.getsize(path)
    if left:
        os.truncate(path, left - 1)
        os.kill(os.getpid(), signal.SIGKILL)


@register("unprepared", prepare=_raise)
def unprepared(output: str, gold: str) -> Verdict:
    """Cannot be prepared."""
    return Verdict(True, output, "match")
