"""A run that gets SIGKILL in the middle of a phase, for test_killed_runs: doomed_run.py CONFIG WORKDIR MOMENT

CONFIG is JSON; MOMENT is PHASE:OCCURRENCE:SECONDS, so many seconds after the phase begins for the n-th time.
"""

import contextlib
import functools
import itertools
import json
import os
import signal
import sys
import threading

from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, run, train
from pods_jax.training.checkpoint import Checkpoints
from pods_jax.training.metrics import PhaseClock


def main() -> None:
    config, workdir, moment = sys.argv[1:]
    arrange_death(*moment.split(":"))
    train(from_mapping(json.loads(config))[0], workdir, Reporter())


def arrange_death(phase: str, occurrence: str, seconds: str) -> None:
    """Starts a timer when the phase begins; the phases are those of the clock, "checkpoint" and "warm start"."""
    count = itertools.count(1)

    def begins(name):
        if name == phase and next(count) == int(occurrence):
            threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()

    def announced(name, function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            begins(name)
            return function(*args, **kwargs)

        return wrapped

    timed = PhaseClock.phase

    @contextlib.contextmanager
    def announced_phase(clock, name):
        begins(name)
        with timed(clock, name):
            yield

    PhaseClock.phase = announced_phase
    Checkpoints.save = announced("checkpoint", Checkpoints.save)
    run.warm_started_params = announced("warm start", run.warm_started_params)


if __name__ == "__main__":
    main()
