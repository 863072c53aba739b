"""Processes of contenders, and the summaries of their turns."""

import os
import subprocess
import sys

import pytest
from benchmark import contenders
from benchmark.contenders import Contender, Ended, Result, compare, summarise

DOOMED = """
import json, os, signal, sys

turns = int(json.loads(sys.argv[1])["turns"])
for turn in range(turns):
    print(json.dumps({"seconds": 1.0, "cpu_seconds": 2.0, "tokens": 10, "peak_bytes": 5}), flush=True)
    sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_medians_and_peaks():
    costs = ((1.0, 1.5, 5), (4.0, 7.0, 9), (2.0, 3.0, 7))
    turns = [{"seconds": s, "cpu_seconds": c, "tokens": 10, "peak_bytes": p} for s, c, p in costs]
    assert summarise(turns) == Result(2.0, 3.0, 5.0, 9)


def test_a_contender_that_fails_says_how(tmp_path):
    with pytest.raises(Ended, match=r"^ended with exit code 1$"):
        Contender("ours/update", {"folder": str(tmp_path)})


@pytest.fixture
def doomed(monkeypatch):
    """Contenders that are killed when they have answered so often as their option says, the warm-up included."""
    started = contenders.subprocess.Popen

    def popen(command, **pipes):
        return started([command[0], "-c", DOOMED, command[-1]], **pipes)

    monkeypatch.setattr(contenders.subprocess, "Popen", popen)


@pytest.mark.usefixtures("doomed")
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_one_that_is_killed_leaves_the_others_to_go_on(turns):
    options = {"peer": {"contender": "a", "turns": turns}, "ours": {"contender": "b", "turns": 100}}
    assert compare(options, repeats=3) == {"peer": "killed (out of memory)", "ours": Result(1.0, 2.0, 10.0, 5)}


def test_the_kernel_takes_a_contender_first(tmp_path, monkeypatch):
    file = tmp_path / "oom_score_adj"
    monkeypatch.setattr(contenders, "OOM_SCORE", file)
    contenders.go_first_when_memory_ends()
    assert file.read_text() == "1000"


@pytest.mark.skipif(not contenders.STATUS.exists(), reason="only Linux tells a process's own peak")
def test_a_peak_is_that_of_the_process_and_not_of_the_one_that_started_it():
    held = bytearray(500_000_000)
    held[::4096] = b"1" * len(held[::4096])
    code = "from benchmark.contenders import peak_bytes; print(peak_bytes())"
    paths = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": paths})
    assert 10_000_000 < int(done.stdout) < len(held) < contenders.peak_bytes()


def test_a_peak_where_there_is_no_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(contenders, "STATUS", tmp_path / "none")
    assert contenders.peak_bytes() > 10_000_000
