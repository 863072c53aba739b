"""Whole runs under an allocator that buffers, discards, joins and runs dry: the accounts, and resuming."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from juggler import Juggler

from pods_jax.config.schema import from_mapping
from pods_jax.groups import Prompt, Request
from pods_jax.io import read_jsonl
from pods_jax.training import Reporter, train
from pods_jax.training.metrics import count_generated, new_totals, settle
from pods_jax.training.step import claim

RUN = """
import json, os, signal, sys
import juggler
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train

class Dies(Reporter):
    def step(self, metrics):
        self.done = getattr(self, "done", 0) + 1
        if self.done == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

train(from_mapping(json.loads(sys.argv[1]))[0], sys.argv[2], Dies())
"""


@pytest.fixture
def juggled(tiny):
    tiny.allocation.name = "juggler"
    tiny.training.checkpoint_every_steps = 3
    return tiny


def built(config):
    return from_mapping(config)[0]


def untimed(path):
    return [{k: v for k, v in r.items() if "time" not in k} for r in read_jsonl(path)]


@pytest.mark.parametrize("rule", ["max_variance", "all"])
def test_everything_generated_is_trained_discarded_or_held(juggled, tmp_path, rule):
    juggled.selection.rule = rule
    juggled.objective.mask_truncated_completions = rule == "all"
    train(built(juggled), tmp_path / "run", Reporter())
    steps, evals = (read_jsonl(tmp_path / "run" / f"{name}.jsonl") for name in ("metrics", "eval"))
    for unit in ("rollouts", "tokens"):
        totals = {k: np.array([s[f"{unit}/{k}"] for s in steps]) for k in ("generated", "trained", "discarded")}
        held = [s[f"{unit}/buffered"] for s in steps]
        np.testing.assert_array_equal(totals["generated"], totals["trained"] + totals["discarded"] + held)
        stages = [sum(s.get(f"{unit}/{stage}", 0) for stage in ("plain", "pilot", "commit")) for s in steps]
        np.testing.assert_array_equal(totals["generated"], stages)
        assert all((np.diff(x) >= 0).all() and x[-1] > 0 for x in totals.values())
        assert max(held) > 0
        assert evals[0][f"{unit}/generated"] == 0  # evaluations are not counted
        assert evals[-1][f"{unit}/generated"] == totals["generated"][-1]
    assert np.diff([s["rounds"] for s in steps]).max() > 1
    assert steps[0]["staleness/max"] == 0 < max(s["staleness/max"] for s in steps)
    assert all(0 <= s["staleness/mean"] <= s["staleness/max"] for s in steps)
    assert all(s["juggler/in_the_air"] >= 0 for s in steps)


def test_a_run_killed_amid_its_buffer_goes_on_to_the_same_end(juggled, tmp_path):
    config = built(juggled)
    train(config, tmp_path / "whole", Reporter())
    arguments = [json.dumps(juggled.to_dict()), str(tmp_path / "killed"), "5"]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    died = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, env=os.environ | {"PYTHONPATH": paths}
    )
    assert died.returncode == -9, died.stderr.decode()
    assert read_jsonl(tmp_path / "killed" / "metrics.jsonl")[2]["rollouts/buffered"] > 0  # at the checkpoint
    train(config, tmp_path / "killed", Reporter())
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert untimed(tmp_path / "killed" / name) == untimed(tmp_path / "whole" / name)


@pytest.mark.parametrize(("limit", "eval_every"), [(5, 3), (5, 1), (0, 0)])
def test_an_allocator_that_runs_dry_ends_the_run_in_good_order(juggled, tmp_path, capsys, limit, eval_every):
    juggled.allocation.options, juggled.training.eval_every_steps = {"limit": limit}, eval_every
    summary = train(built(juggled), tmp_path / "run", Reporter())
    assert "the juggler has thrown" in capsys.readouterr().out
    steps, evals = (read_jsonl(tmp_path / "run" / f"{name}.jsonl") for name in ("metrics", "eval"))
    assert summary["steps"] == len(steps) < 6
    assert [e["step"] for e in evals] == sorted({*range(0, len(steps) + 1, eval_every or 9), len(steps)})
    lines = [untimed(tmp_path / "run" / name) for name in ("metrics.jsonl", "eval.jsonl")]
    assert train(built(juggled), tmp_path / "run", Reporter())["after"] == summary["after"]  # and again, as it was
    assert [untimed(tmp_path / "run" / name) for name in ("metrics.jsonl", "eval.jsonl")] == lines


# ---------------------------------------------------------------- single rounds


def request(uid, first, count):
    return Request(Prompt(uid, uid, "", "", "", (1,)), count, first=first)


def test_no_sample_is_asked_for_twice_in_a_step():
    taken = defaultdict(list)
    claim(taken, [request(1, 0, 4), request(2, 2, 3), request(1, 4, 4)])
    claim(taken, [request(2, 0, 2), request(1, 8, 1)])
    with pytest.raises(ValueError, match=r"prompt 1: samples 7 to 9 .* Request.first"):
        claim(taken, [request(1, 7, 3)])


def test_an_allocator_that_does_nothing_does_not_loop(juggled, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Juggler, "requests", lambda self, stream: [])
    monkeypatch.setattr(Juggler, "observe", lambda self, groups: [])
    juggled.evaluation.num_samples, juggled.evaluation.greedy = 0, True
    assert train(built(juggled), tmp_path / "run", Reporter())["steps"] == 0
    assert "'juggler' neither asks for rollouts nor hands over groups" in capsys.readouterr().out


def test_nothing_is_in_the_accounts_at_the_start():
    totals = new_totals()
    assert settle(totals, []) == {"rollouts/buffered": 0.0, "tokens/buffered": 0.0}
    count_generated(totals, [])
    assert not any(totals.values())
