"""Signals end a run in good order, and the same command goes on to the same end."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from pods_jax.config.schema import from_mapping
from pods_jax.io import read_jsonl
from pods_jax.training import Reporter, train
from pods_jax.training.loop import StopRequest

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


def stopped_run(config, workdir, step):
    """A run in its own process that gets SIGTERM after a step."""
    arguments = [json.dumps(config.to_dict()), str(workdir), str(step), str(int(signal.SIGTERM))]
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
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


def test_a_run_may_be_stopped_before_its_first_step(tiny, tmp_path):
    tiny.training.num_steps = 1
    stopped_run(tiny, tmp_path / "run", 0)
    train(from_mapping(tiny)[0], tmp_path / "run", Reporter())
    assert [e["step"] for e in read_jsonl(tmp_path / "run" / "eval.jsonl")] == [0, 1]


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


def test_the_handler_needs_no_reader(monkeypatch):
    def broken(*_):
        raise BrokenPipeError

    monkeypatch.setattr("os.write", broken)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal() == "SIGTERM"
