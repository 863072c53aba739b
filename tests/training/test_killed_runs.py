"""A run that is killed again and again ends as one that is never killed, to the bit.

Each life ends by SIGKILL at a random moment of a random phase, and the next one goes on in the same workdir. In the end
the logs (timing aside), the parameters and the optimizer's state must be those of the other run. Three kills by
default; as `slow`, PODS_JAX_KILLS of them (20 if it is not set) with several methods and the demo:

    PODS_JAX_KILLS=20 pytest -m slow tests/training/test_killed_runs.py
"""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import forked
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from pods_jax.config.load import load_config
from pods_jax.config.schema import to_dict
from pods_jax.io import read_jsonl

ROOT = Path(__file__).parents[2]
NUM_KILLS = int(os.environ.get("PODS_JAX_KILLS", "20"))
LOGS = ("metrics.jsonl", "eval.jsonl", "samples.jsonl")
PHASES = ("warm start", "sample", "verify", "select", "update", "eval", "checkpoint")
UNTIMED_S = {"warm start": 3.0, "checkpoint": 0.3}
"""Generous durations of the phases that no log has."""


class Runs:
    """Two runs of one config: `whole` is never killed, `killed` is."""

    def __init__(self, config, folder):
        self.config = json.dumps(config)
        self.folder = folder
        self.whole = folder / "whole"
        self.killed = folder / "killed"

    def live(self, workdir, moment="never:0:0", python=forked.run):
        """One life, until its end or the moment of its death; whether it ended well. The lives share compiled code."""
        environment = {
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "PODS_JAX_CACHE": f"{workdir}-cache",
        } | os.environ
        script = str(Path(__file__).with_name("doomed_run.py"))
        done = python([script, self.config, str(workdir), moment], env=environment)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode == 0

    def kill_often(self, number, phases, rng):
        """Lives that end in a kill, and a last one that ends well. Returns the number of kills by phase."""
        seconds = typical_seconds(self.whole)
        kills = Counter()
        while kills.total() < number:
            phase = rng.choice(phases)
            occurrence = 1 if phase in ("warm start", "eval") else rng.randint(1, 4)
            if self.live(self.killed, f"{phase}:{occurrence}:{rng.uniform(0, seconds[phase]):.4f}"):
                return kills  # it ended before its moment came
            kills[phase] += 1
        assert self.live(self.killed)
        return kills


def typical_seconds(workdir):
    """Mean seconds of each phase."""
    records = read_jsonl(workdir / "metrics.jsonl") + read_jsonl(workdir / "eval.jsonl")
    times = {phase: [r[f"time/{phase}_s"] for r in records if f"time/{phase}_s" in r] for phase in PHASES}
    return {phase: np.mean(seconds) for phase, seconds in times.items() if seconds} | UNTIMED_S


def untimed(log):
    """The records of a log without their times; a torn line is an error."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [{k: v for k, v in record.items() if "time" not in k} for record in records]


def final_arrays(workdir):
    """The bits of every array of the last checkpoint."""
    last = max((workdir / "checkpoints").iterdir(), key=lambda p: int(p.name) if p.name.isdigit() else -1)
    state = ocp.StandardCheckpointer().restore(last.absolute() / "state")
    return {jax.tree_util.keystr(p): np.asarray(x).tobytes() for p, x in jax.tree_util.tree_leaves_with_path(state)}


def assert_same_end_after_kills(config, folder, number, phases=PHASES, seed=0):
    runs = Runs(config, folder)
    assert runs.live(runs.whole, python=forked.started)  # sets have another order than in the killed run
    kills = runs.kill_often(number, phases, random.Random(seed))
    assert kills.total() == number, f"the run ended after {dict(kills)}: give it more steps"
    for log in LOGS:
        assert untimed(runs.killed / log) == untimed(runs.whole / log)
    arrays = final_arrays(runs.whole)
    killed_arrays = final_arrays(runs.killed)
    assert killed_arrays.keys() == arrays.keys()
    assert [name for name in arrays if killed_arrays[name] != arrays[name]] == []


@pytest.fixture
def longer(tiny):
    tiny.training.num_steps, tiny.training.checkpoint_every_steps = 24, 2
    tiny.training.eval_every_steps, tiny.training.log_samples_every_steps = 4, 3
    tiny.warm_start.num_steps, tiny.warm_start.batch_size = 50, 8
    return tiny


def test_a_run_killed_while_it_writes_and_updates_ends_the_same(longer, tmp_path):
    assert_same_end_after_kills(longer.to_dict(), tmp_path, 3, ("checkpoint", "update", "verify"))


BUFFERED = {"candidates": 8, "p_lower": 0.0, "p_upper": 1.0, "clear_at_epoch_end": False}  # some pilots wait
CHANGES = {
    "uniform": {},
    "pilot_commit": {"allocation": {"name": "pilot_commit", "options": BUFFERED}},
    "lora": {"lora": {"rank": 2}, "objective": {"beta": 0.1, "num_iterations": 2}},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_run_killed_many_times_ends_the_same(longer, tmp_path, change):
    longer.update(change)
    longer.training.num_steps = 4 * NUM_KILLS
    assert_same_end_after_kills(longer.to_dict(), tmp_path, NUM_KILLS)


@pytest.mark.slow
def test_the_demo_killed_many_times_ends_the_same(tmp_path):
    steps = (f"training.num_steps={4 * NUM_KILLS}", "training.checkpoint_every_steps=2", "training.eval_every_steps=4")
    config = load_config(str(ROOT / "configs/demo.py"), (*steps, "warm_start.num_steps=100"))
    assert_same_end_after_kills(to_dict(config), tmp_path, NUM_KILLS)
