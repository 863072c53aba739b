"""Verifiers that do what the gold says, for the tests of the pool; workers import this module."""

import os
import re
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
    """The process that judges, and the modules among "a,b,c" in the gold that it has loaded."""
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


@register("unprepared", prepare=_raise)
def unprepared(output: str, gold: str) -> Verdict:
    """Cannot be prepared."""
    return Verdict(True, output, "match")
