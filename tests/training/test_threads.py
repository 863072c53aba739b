"""Threads give results in order, pass errors on, and keep no process alive."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from pods_jax.training.threads import DaemonThreads


@pytest.mark.parametrize("count", [1, 3])
def test_results_are_in_order_and_errors_are_passed_on(count):
    with DaemonThreads(count) as threads:
        futures = [threads.submit(pow, 2, n) for n in range(5)] + [threads.submit(int, "x")]
        assert [future.result(timeout=5) for future in futures[:5]] == [1, 2, 4, 8, 16]
        with pytest.raises(ValueError, match="invalid literal"):
            futures[5].result(timeout=5)
        assert threads.map(pow, (2, 3), (5, 4)) == [32, 81]
        with pytest.raises(ZeroDivisionError):
            threads.map(divmod, (1, 1), (1, 0))


def test_as_many_calls_as_threads_are_under_way_at_once():
    together = threading.Barrier(3)
    with DaemonThreads(3) as threads:
        assert sorted(threads.map(together.wait, [5] * 3)) == [0, 1, 2]


def test_an_error_drops_the_calls_that_wait():
    begun, goes_on = threading.Event(), threading.Event()

    def call():
        begun.set()
        return goes_on.wait(5)

    def submit_and_fail(futures):
        with DaemonThreads() as thread:
            futures += [thread.submit(call), thread.submit(call)]
            begun.wait(5)
            raise KeyError

    futures = []
    with pytest.raises(KeyError):
        submit_and_fail(futures)
    assert futures[1].cancelled()
    goes_on.set()
    assert futures[0].result(timeout=5)


def test_a_call_that_was_cancelled_is_left_out():
    goes_on, called = threading.Event(), []
    with DaemonThreads() as thread:
        thread.submit(goes_on.wait)
        assert thread.submit(called.append, 1).cancel()
        last = thread.submit(called.append, 2)
        goes_on.set()
        last.result(timeout=5)
    assert called == [2]


def test_a_hung_function_keeps_no_interrupted_process_alive():
    script = """
import signal, threading
from pods_jax.training.threads import DaemonThreads
signal.signal(signal.SIGINT, signal.default_int_handler)
with DaemonThreads(2) as threads:
    future = threads.submit(threading.Event().wait)
    print("hangs", flush=True)
    future.result()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout.readline() == b"hangs\n"
        time.sleep(0.5)
        program.send_signal(signal.SIGINT)
        try:
            assert program.wait(timeout=20) != 0
        finally:
            program.kill()
