"""One of two processes fails while the other compiles or saves: both end, in bounded time. As a script, one of them."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from pods_jax.cli import main_with_errors
from pods_jax.errors import UserError
from pods_jax.learner import TrainState
from pods_jax.parallel import make_mesh, place, replicated, start
from pods_jax.training.checkpoint import Checkpoints

LIMIT_S = 5
"""In place of the minute that processes wait for each other."""


def end_of_both(scenario, folder):
    """Exit codes, and seconds from the failure to the end of the last process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    command = [sys.executable, __file__, scenario, str(folder), address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    children = [subprocess.Popen([*command, str(i)], env=environment, **pipes) for i in range(2)]
    try:
        outputs = [child.communicate(timeout=200)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert (folder / "failed").exists(), outputs
    return [child.returncode for child in children], time.time() - (folder / "failed").stat().st_mtime


@pytest.mark.parametrize(
    "scenario",
    [
        "killed_while_the_other_compiles",
        pytest.param("fails_while_the_other_compiles", marks=pytest.mark.slow),
        pytest.param("fails_while_the_other_saves", marks=pytest.mark.slow),
        pytest.param("fails_and_cannot_end", marks=pytest.mark.slow),
    ],
)
def test_a_failure_ends_both_processes(scenario, tmp_path):
    codes, seconds = end_of_both(scenario, tmp_path)
    assert 0 not in codes
    assert seconds < 100  # of the 10 minutes that the other would have gone on


# ---------------------------------------------------------------- the child


def fail(folder):
    (folder / "failed").touch()
    raise UserError("it failed")


def compile_for_long():
    """As the compiler does, this holds the main thread and leaves the others alone."""
    time.sleep(600)


def save(folder):
    """A checkpoint, for which Orbax waits for the other process."""
    state = TrainState(*place(({"w": jnp.ones(4)}, {}, jnp.int32(0)), replicated(make_mesh())))
    checkpoints = Checkpoints(folder, 2)
    checkpoints.save(1, state, {})
    checkpoints.close()


def killed_while_the_other_compiles(folder, failing):
    if failing:
        (folder / "failed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    compile_for_long()


def fails_while_the_other_compiles(folder, failing):
    fail(folder) if failing else compile_for_long()


def fails_while_the_other_saves(folder, failing):
    fail(folder) if failing else save(folder)


def fails_and_cannot_end(folder, failing):
    """A save in the background, say, waits for what it will not get."""
    if failing:
        threading.Thread(target=compile_for_long).start()
        fail(folder)
    compile_for_long()


def main():
    scenario, folder, address, index = sys.argv[1:]
    start.SHUTDOWN_S = start.HEARTBEAT_S = LIMIT_S
    start.join(address, 2, int(index))
    jax.devices()
    globals()[scenario](Path(folder), failing=index == "1")


if __name__ == "__main__":
    main_with_errors(main)
