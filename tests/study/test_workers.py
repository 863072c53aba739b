"""Processes that make several runs each: what they say, what ends them, and what they compile."""

import json
import os
import signal
import time

import pytest
from study import workers
from study.workers import Workers

from pods_jax import processor
from pods_jax.errors import UserError
from pods_jax.training.sweep import SweepRun, make

FAKE = """
import json, os, sys, time
from pods_jax.processor import cores
for line in sys.stdin:
    job = json.loads(line)
    with open(os.path.join(job["workdir"], "made"), "w") as file:
        file.write(f"{os.getpid()} {cores()}")
    if "die" in job["spec"]:
        os._exit(7)
    if "wait" in job["spec"]:
        time.sleep(600)
    print(json.dumps("no luck" if "bad" in job["spec"] else None), flush=True)
"""


def runs_of(tmp_path, *specs):
    return [SweepRun(spec, (), seed, tmp_path / f"{seed}-{spec}") for seed, spec in enumerate(specs)]


def made(run):
    return (run.workdir / "made").read_text().split(maxsplit=1)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(workers, "SCRIPT", tmp_path / "fake.py")


def test_a_worker_makes_several_runs_and_says_what_went_wrong(tmp_path, fake):
    runs = runs_of(tmp_path, "good", "bad", "good")
    with Workers(1) as pool:
        assert dict(pool.run(runs[:2])) == {runs[0]: None, runs[1]: "no luck"}
        assert dict(pool.run(runs[2:])) == {runs[2]: None}
    assert len({made(run)[0] for run in runs}) == 1


def test_a_worker_that_dies_is_replaced(tmp_path, fake):
    runs = runs_of(tmp_path, "die", "good")
    with Workers(1) as pool:
        problems = dict(pool.run(runs))
    assert problems == {runs[0]: "exit code 7 of the process that made it", runs[1]: None}
    assert made(runs[0])[0] != made(runs[1])[0]


@pytest.mark.skipif(len(processor.cores()) < 2 or not processor.can_pin(), reason="needs two cores to bind to")
def test_each_worker_has_cores_of_its_own(tmp_path, fake):
    runs = runs_of(tmp_path, *["good"] * 8)
    with Workers(2) as pool:
        list(pool.run(runs))
    shares = dict(made(run) for run in runs)
    cores = [set(json.loads(share)) for share in shares.values()]
    assert sum(map(len, cores)) == len(set.union(*cores))


def test_more_workers_than_cores_are_refused():
    with pytest.raises(UserError, match=r"--workers 1000: there are \d+ cores"):
        Workers(1000)


def test_stopping_early_ends_the_worker_and_starts_nothing_more(tmp_path, fake):
    runs = runs_of(tmp_path, "good", "wait", "good")
    with Workers(1) as pool:
        for _ in pool.run(runs):
            while not (runs[1].workdir / "made").is_file():
                time.sleep(0.01)
            break
    assert not (runs[2].workdir / "made").exists()
    pid = int(made(runs[1])[0])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the worker lives")


def test_finished_runs_are_not_made_again(tmp_path, fake, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    runs = runs_of(tmp_path, "good", "good")
    runs[1].workdir.mkdir()
    (runs[1].workdir / "summary.json").write_text("{}")
    with Workers(1) as pool:
        assert dict(make(pool.run, runs)) == {runs[1]: None, runs[0]: None}
    assert not (runs[1].workdir / "made").exists()


TINY = (
    "model.hidden_size=16", "model.num_hidden_layers=1", "model.intermediate_size=32", "warm_start.num_steps=0",
    "data.options={'base': 3, 'digits': 1, 'num_train': 6, 'num_test': 3}", "rollout.num_prompts=2",
    "rollout.num_generations=4", "selection.num_kept=2", "optimizer.micro_batch_size_per_device=4",
    "training.num_steps=1", "evaluation.num_samples=0", "evaluation.num_prompts=3", "evaluation.batch_size=4",
    "training.checkpoint_every_steps=0", "training.keep_best=False",
)  # fmt: skip


def test_real_runs_leave_logs_and_summaries_and_bad_ones_their_reason(tmp_path):
    good = SweepRun("configs/demo.py:pods", TINY, 1, tmp_path / "good")
    bad = SweepRun("configs/demo.py:pods", (*TINY, "selection.num_kept=5"), 1, tmp_path / "bad")
    with Workers(1) as pool:
        problems = dict(pool.run([bad, good]))
    assert problems[good] is None
    assert good.state() == "finished"
    assert "test problems, before and after 1 steps" in (good.workdir / "log.txt").read_text()
    assert "selection.num_kept" in problems[bad]
