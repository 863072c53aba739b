"""Signals end a run in good order, and the same command goes on to the same end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import forked
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from pods_jax.config.schema import from_mapping
from pods_jax.io import read_jsonl
from pods_jax.training import Reporter, stopping, train
from pods_jax.training.step import train_step
from pods_jax.training.stopping import Stopped, StopRequest

RUN = """
import json, os, sys
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train

class Signalled(Reporter):
    def policy(self, run, start):
        super().policy(run, start)
        self.after(0)

    def step(self, metrics):
        super().step(metrics)
        self.steps_done = getattr(self, "steps_done", 0) + 1
        self.after(self.steps_done)

    def after(self, step):
        if step == int(sys.argv[3]):
            os.kill(os.getpid(), int(sys.argv[4]))

train(from_mapping(json.loads(sys.argv[1]))[0], sys.argv[2], Signalled())
"""


def untimed(path):
    return [{k: v for k, v in r.items() if "time" not in k} for r in read_jsonl(path)]


def signalled_run(config, workdir, step):
    """A run in its own process that gets SIGTERM after a step."""
    arguments = [json.dumps(config.to_dict()), str(workdir), str(step), str(int(signal.SIGTERM))]
    done = forked.run(["-c", RUN, *arguments])
    assert done.returncode == 0, done.stderr
    return done


def stopped_run(config, workdir, step):
    done = signalled_run(config, workdir, step)
    assert f"stopped  by SIGTERM after step {step}, which is saved; the same command goes on" in done.stdout
    assert (workdir / "checkpoints" / str(step)).is_dir()
    assert len(read_jsonl(workdir / "metrics.jsonl")) == step


def test_a_stopped_run_goes_on_to_the_same_end(tiny, tmp_path):
    """It does not evaluate where it stops, between two evaluations: the time may be short."""
    stopped_run(tiny, tmp_path / "run", 4)
    assert [e["step"] for e in read_jsonl(tmp_path / "run" / "eval.jsonl")] == [0, 3]
    config, _ = from_mapping(tiny)
    for name in ("run", "whole"):
        train(config, tmp_path / name, Reporter())
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert untimed(tmp_path / "run" / name) == untimed(tmp_path / "whole" / name)
    assert starts(tmp_path / "run" / "tensorboard") == [1, 5]


def test_a_signal_in_a_step_that_finds_nothing_loses_no_evaluation(tiny, tmp_path, monkeypatch):
    def signalled(run, step):
        os.kill(os.getpid(), signal.SIGTERM)
        return train_step(run, step)

    tiny.reward.parts, tiny.reward.functions = {"none": 1.0}, {"none": f"{__name__}:nothing"}
    tiny.allocation.name, tiny.allocation.options = "dynamic_sampling", {"on_exhausted": "stop", "max_rounds": 2}
    config, _ = from_mapping(tiny)
    monkeypatch.setattr("pods_jax.training.loop.train_step", signalled)
    first = train(config, tmp_path / "run", Reporter())
    assert (first["stopped_by"], first["steps"]) == ("SIGTERM", 0)
    assert [e["step"] for e in read_jsonl(tmp_path / "run" / "eval.jsonl")] == [0]
    monkeypatch.undo()
    for name in ("run", "whole"):
        train(config, tmp_path / name, Reporter())
    assert untimed(tmp_path / "run" / "eval.jsonl") == untimed(tmp_path / "whole" / "eval.jsonl")
    assert read_jsonl(tmp_path / "run" / "eval.jsonl")[0]["rollouts/generated"] > 0


def nothing(completions, **columns):
    return [0.0 for _ in completions]


def starts(folder):
    """The first step of each life, before which TensorBoard hides what an earlier life wrote of it or later ones."""
    found = []
    for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime):
        data = file.read_bytes()
        while data:  # a record: 8 bytes of length, 4 of checksum, the event, 4 of checksum
            size = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + size])
            found += [event.step] if event.session_log.status == SessionLog.START else []
            data = data[16 + size :]
    return found


def test_before_the_first_step_a_signal_ends_the_run_and_the_same_command_starts_again(tiny, tmp_path):
    tiny.training.num_steps = 1
    done = signalled_run(tiny, tmp_path / "run", 0)
    assert "SIGTERM: stopping\n" in done.stderr
    assert "stopped  by SIGTERM, with nothing to save; the same command starts again" in done.stdout
    assert not (tmp_path / "run" / "eval.jsonl").exists() or not read_jsonl(tmp_path / "run" / "eval.jsonl")
    train(from_mapping(tiny)[0], tmp_path / "run", Reporter())
    assert [e["step"] for e in read_jsonl(tmp_path / "run" / "eval.jsonl")] == [0, 1]


def test_ctrl_c_ends_a_warm_start(tiny, tmp_path):
    tiny.warm_start.num_steps = 10**6
    process = started(["-c", INTERRUPTIBLE, json.dumps(tiny.to_dict()), str(tmp_path / "run"), str(tmp_path / "cache")])
    wait_for(process, "warm-up  100 supervised steps")
    seconds = seconds_to_end(process, signal.SIGINT)
    assert process.returncode == 0
    assert "stopped  by SIGINT, with nothing to save" in process.stdout.read()
    assert seconds < 10  # where nothing else runs, 1


INTERRUPTIBLE = """
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["PODS_JAX_CACHE"] = sys.argv[3]
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train

train(from_mapping(json.loads(sys.argv[1]))[0], sys.argv[2], Reporter())
"""

DEAF = """
import contextlib, ctypes, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
StopRequest = runpy.run_path(sys.argv[2])["StopRequest"]  # without the imports of its package

with StopRequest(exit_code=75) as stop:
    with stop.at_once() if sys.argv[1] == "at once" else contextlib.nullcontext():
        libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        print("ready", flush=True)
        libc.pthread_mutex_lock(mutex)  # as inside a compiler: no signal reaches Python
"""


@pytest.mark.parametrize(("moment", "signals", "code"), [("at once", 1, 75), ("in a step", 2, 130)])
def test_a_process_inside_a_compiler_is_heard_and_ended(moment, signals, code):
    process = started(["-c", DEAF, moment, stopping.__file__])
    wait_for(process, "ready")
    time.sleep(1)  # until it is deaf
    for _ in range(signals - 1):
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "\n"
        assert process.stderr.readline() == "SIGINT: finishing the step, then saving (Ctrl-C: stopping at once)\n"
    assert seconds_to_end(process, signal.SIGINT) < 5
    assert process.returncode == code
    assert process.stderr.read() == "\nSIGINT: stopping\n"


def started(arguments):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *arguments], text=True, **pipes)


def wait_for(process, text):
    """Reads stdout to the line that holds the text."""
    assert any(text in line for line in process.stdout), process.stderr.read()


def seconds_to_end(process, number):
    start = time.monotonic()
    process.send_signal(number)
    process.wait(timeout=60)
    return time.monotonic() - start


@pytest.mark.usefixtures("interruptible")
def test_a_signal_before_there_is_something_to_save_is_not_forgotten():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Stopped, match="SIGINT"), stop.at_once():
            pytest.fail("it went on")


@pytest.mark.usefixtures("interruptible")
def test_once_there_is_something_to_save_a_signal_is_noted():
    with StopRequest() as stop:
        with stop.at_once():
            pass
        signal.raise_signal(signal.SIGINT)
        assert stop.signal() == "SIGINT"


@pytest.fixture
def interruptible():
    """Python's own handler of SIGINT, which a background process of a shell does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_is_not_caught():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.signal() == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_in_another_thread_signals_are_left_alone():
    def enter():
        with StopRequest():
            seen.append(signal.getsignal(signal.SIGTERM))

    seen, before = [], signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_closed_terminal_is_a_stop():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever started the tests may ignore it
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal() == "SIGHUP"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_is_ignored_stays_so():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal() is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_at_the_very_end_is_answered(capfd, monkeypatch):
    """However late the thread that answers gets a processor."""
    at_once = StopRequest._answer
    monkeypatch.setattr(StopRequest, "_answer", lambda *args, **kw: time.sleep(0.3) or at_once(*args, **kw))
    with StopRequest():
        os.kill(os.getpid(), signal.SIGTERM)
    assert "SIGTERM: finishing the step" in capfd.readouterr().err


def test_the_handler_needs_no_reader(monkeypatch):
    def broken(*_):
        raise BrokenPipeError

    monkeypatch.setattr("os.write", broken)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal() == "SIGTERM"
