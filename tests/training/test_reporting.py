"""Messages go to whoever still reads them, and are text; progress tells how far a run is, and how fast."""

import subprocess
import sys
import types

import numpy as np
import pytest

from pods_jax.config.schema import LoraConfig
from pods_jax.training import Reporter
from pods_jax.training.reporting import Lines, Pace

TALKS = """
import sys, time
from pods_jax.training import Reporter

reporter = Reporter()
sys.stdin.readline()  # by now nobody reads
for _ in reporter.steps(range(3), 0):
    reporter.message("a line " * 2000)
open(sys.argv[1], "w").write("done")
"""


def test_a_reader_that_goes_away_stops_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", TALKS, str(tmp_path / "end")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(timeout=120) == 0
    assert (tmp_path / "end").read_text() == "done"


def test_text_of_users_is_no_markup(capsys):
    Reporter().message("runs/[red]x[/red] :smile: [/]")
    assert capsys.readouterr().out == "runs/[red]x[/red] :smile: [/]\n"


def metrics(step, reward=0.5):
    """The metrics after `step` steps of 2 s, each of which generated 100 tokens."""
    return {
        "reward": reward, "selection/kept_variance": 0.25, "tokens/generated": 100.0 * step, "wall_time_s": 2.0 * step,
    }  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    """Sets the time."""
    return lambda seconds: monkeypatch.setattr("time.monotonic", lambda: seconds)


def test_the_time_left_leaves_the_first_step_out(clock):
    pace = Pace(10)
    clock(60.0)
    pace.step(metrics(1))
    assert (pace.seconds_left(), pace.tokens_per_s(), str(pace)) == (None, None, "")
    for step, now in ((2, 62.5), (3, 65.0)):
        clock(now)
        pace.step(metrics(step))
    assert pace.seconds_left() == 7 * 2.5
    assert pace.tokens_per_s() == 50.0
    assert str(pace) == "00:17 left, 50 tokens/s"


def test_speed_is_that_of_the_last_steps():
    pace = Pace(100)
    for step in range(50):
        pace.step({"tokens/generated": float(step**2), "wall_time_s": float(step)})
    assert pace.tokens_per_s() == (49**2 - 40**2) / 9


def run_of(reporter, steps):
    for step in reporter.steps(range(1, steps + 1), 0):
        reporter.step(metrics(step, reward=step / 10))


def test_without_a_terminal_progress_is_plain_lines(capsys, clock, monkeypatch):
    monkeypatch.setattr(Lines, "INTERVAL_S", 10.0)
    clock(5.0)
    run_of(Reporter(), 4)
    out, err = capsys.readouterr()
    assert out.startswith("compile  step 1 compiles its programs")
    assert err == (
        "train    step 1 of 4: reward 0.100, kept variance 0.250\n"
        "train    step 4 of 4: 00:00 left, 50 tokens/s, reward 0.400, kept variance 0.250\n"
    )


def test_on_a_terminal_progress_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run_of(Reporter(), 4)
    shown = capsys.readouterr().err.split("\r")
    assert "0/4 [00:00, compiling]" in shown[2]
    assert "4/4" in shown[-1]
    assert "50 tokens/s, reward 0.400" in shown[-1]


def test_a_quiet_reporter_says_nothing(capsys):
    reporter = Reporter(quiet=True)
    reporter.warm_start(100, None)
    run_of(reporter, 2)
    reporter.evaluated(2, {"accuracy": 0.5})
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("lora", "says"), [
    (LoraConfig(rank=32), "adapters (alpha / rank = 64 / 32 = scale 2) of"),
    (LoraConfig(rank=16, alpha=8.0), "adapters (alpha / rank = 8 / 16 = scale 0.5) of"),
])  # fmt: skip
def test_a_run_says_the_scale_of_its_adapters(capsys, lora, says):
    device = types.SimpleNamespace(device_kind="cpu")
    mesh = types.SimpleNamespace(devices=np.array([device]))
    state = types.SimpleNamespace(params=[np.zeros(3)])
    config = types.SimpleNamespace(lora=lora)
    Reporter().policy(types.SimpleNamespace(state=state, base=[np.zeros(5)], config=config, mesh=mesh), 0)
    assert capsys.readouterr().out == f"policy   3 parameters in {says} 5 frozen ones on 1 cpu device(s)\n"


def test_every_evaluation_is_a_line(capsys):
    reporter = Reporter()
    reporter.evaluating(0)
    reporter.evaluated(0, {"accuracy": 0.25, "greedy_accuracy": 0.5, "accuracy/hard": 0.0, "mean_length": 3.0})
    run_of(reporter, 2)
    capsys.readouterr()
    reporter.evaluated(0, {"accuracy": 0.25, "greedy_accuracy": 0.5, "accuracy/hard": 0.0, "mean_length": 3.0})
    reporter.evaluated(4, {"accuracy": 0.75, "aime/accuracy": 0.1, "aime/greedy_accuracy": 0.2})
    assert capsys.readouterr().out.splitlines() == [
        "eval     step 0: accuracy 25.0%, greedy 50.0%, reward 0.150",
        "eval     step 4: accuracy 75.0%, aime/accuracy 10.0%, aime/greedy 20.0%",
    ]


def test_a_warm_start_says_where_it_comes_from(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PODS_JAX_CACHE", str(tmp_path))
    for step in (50, 100):
        Reporter().warm_start(step, 1.5)
    Reporter().warm_start(1000, None)
    assert capsys.readouterr().out.splitlines() == [
        "warm-up  100 supervised steps, loss 1.500",
        f"warm-up  1,000 supervised steps, made before: from {tmp_path / 'warm_starts'}",
    ]
