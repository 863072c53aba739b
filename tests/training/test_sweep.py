"""Sweeps: the grid, names, what is skipped and resumed, and failures; most with a script in the place of training."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax import processor
from pods_jax.analysis.runs import read_run
from pods_jax.config.load import load_config
from pods_jax.config.schema import to_dict
from pods_jax.errors import UserError
from pods_jax.training.sweep import Sweep, check, expand, parse_seeds, parse_setting, table

ROOT = Path(__file__).parents[2]
DEMO = f"{ROOT / 'configs/demo.py'}"
FAKE = """
import json, os, pathlib, sys, time
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
workdir, seed = pathlib.Path(arguments["--workdir"]), int(sys.argv[-1].partition("=")[2])
print("started", sorted(os.sched_getaffinity(0)), flush=True)
time.sleep(float(os.environ.get("FAKE_SECONDS", 0)))
if seed == 1:
    sys.exit("seed 1 never works")
scores = {"accuracy": 0.5 + seed / 10, "greedy_accuracy": 1.0}
(workdir / "summary.json").write_text(json.dumps({"after": scores, "wall_time_s": 10.0 * seed, "steps": 10}))
"""


@pytest.fixture
def fake(tmp_path):
    (tmp_path / "fake.py").write_text(FAKE)
    return tmp_path / "fake.py"


def test_the_grid_is_complete_and_goes_seed_by_seed(tmp_path):
    runs = expand(["a/x.py:pods,n=4", "y.py"], {"o.lr": ["1e-3", "3e-4"], "b": ["[1, 2]"]}, [3, 4], tmp_path)
    assert [r.name for r in runs[:4]] == [
        "x-pods,n=4,o.lr=1e-3,b=_1,_2_/seed=3",
        "x-pods,n=4,o.lr=3e-4,b=_1,_2_/seed=3",
        "y,o.lr=1e-3,b=_1,_2_/seed=3",
        "y,o.lr=3e-4,b=_1,_2_/seed=3",
    ]
    assert len(runs) == 8
    assert runs[0].all_overrides == ("o.lr=1e-3", "b=[1, 2]", "seed=3")
    assert runs[0].workdir == tmp_path / runs[0].name


def test_constants_are_of_all_runs_and_of_no_name(tmp_path):
    runs = expand([DEMO], {"rollout.top_k": ["0", "5"]}, [0], tmp_path, ["training.num_steps=3", "seed=9"])
    assert [run.name for run in runs] == ["demo,rollout.top_k=0/seed=0", "demo,rollout.top_k=5/seed=0"]
    assert runs[1].all_overrides == ("training.num_steps=3", "seed=9", "rollout.top_k=5", "seed=0")
    check(runs)


def test_sweeps_where_processes_cannot_be_bound_to_cores(tmp_path, fake, monkeypatch):
    """As on macOS: the fake runs still ask, and their own Python has the function."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    [(_, problem)] = Sweep(fake).run(expand([DEMO], {}, [0], tmp_path))
    assert problem is None
    with pytest.raises(UserError, match="--cores-per-run: this system cannot bind a process to cores"):
        Sweep(fake, cores_per_run=1)


@given(st.lists(st.integers(0, 30), min_size=1, unique=True))
def test_seeds_as_ranges_and_numbers(seeds):
    assert parse_seeds(",".join(map(str, seeds))) == seeds
    assert parse_seeds(f"{min(seeds)}-{max(seeds)}") == list(range(min(seeds), max(seeds) + 1))


@pytest.mark.parametrize("text", ["", "a", "3-", "1,1", "5-3", "0,5-3", "-1", "4294967296", "0-99999999999"])
def test_what_are_no_seeds(text):
    with pytest.raises(UserError, match="--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1,2", ["1", "2"]),
        ("a.b=x", ["x"]),
        ("a.b={'c': 1, 'd': 2},{}", ["{'c': 1, 'd': 2}", "{}"]),
        ("a.b='x,y',(1, 2),[3, 4]", ["'x,y'", "(1, 2)", "[3, 4]"]),
        ('a.b="Think, then answer",x', ['"Think, then answer"', "x"]),
        ("a.b=[[1,2],[3,4]],[(5, 6), {'a': ']'}]", ["[[1,2],[3,4]]", "[(5, 6), {'a': ']'}]"]),
        ("a.b=Don't,Do", ["Don't", "Do"]),
        ("a.b=a: 1, b", ["a: 1", "b"]),
    ],
)
def test_values_of_a_key(text, values):
    assert parse_setting(text) == ("a.b", values)


def test_mistakes_are_told_before_anything_runs(tmp_path):
    with pytest.raises(UserError, match=r"2 runs would have the workdir x/seed=0"):
        expand(["a/x.py", "b/x.py"], {}, [0], tmp_path)
    with pytest.raises(UserError, match=r"write section\.key="):
        parse_setting("a.b")
    for text in ("a.b=,", "a.b=1,,2", "a.b=1,"):
        with pytest.raises(UserError, match="there is an empty value"):
            parse_setting(text)
    with pytest.raises(UserError, match=r"selection\.num_kept"):
        check(expand([DEMO], {"selection.num_kept": ["16", "128"]}, [0], tmp_path))
    run = expand([DEMO], {}, [0], tmp_path)[0]
    run.workdir.mkdir(parents=True)
    (run.workdir / "config.json").write_text('{"seed": 5}')
    with pytest.raises(UserError, match="belongs to another config"):
        check([run])
    (tmp_path / "file").write_text("text")
    with pytest.raises(UserError, match=r"workdir .*demo/seed=0 cannot be written: .*file is not a folder"):
        check(expand([DEMO], {}, [0], tmp_path / "file"))
    with pytest.raises(UserError, match="there are"):
        Sweep(Path("x"), workers=1000, cores_per_run=1)


def test_a_failed_run_stops_no_other_and_is_reported(fake, tmp_path):
    runs = expand([DEMO], {}, [0, 1, 2], tmp_path)
    problems = {run.seed: problem for run, problem in Sweep(fake).run(runs)}
    assert problems.keys() == {0, 1, 2}
    assert problems[0] is problems[2] is None
    assert problems[1].startswith("exit code 1: seed 1 never works (")
    assert [run.state() for run in runs] == ["finished", "new", "finished"]
    row = table(runs)["demo"]
    assert row["finished"] == 2
    assert (row["accuracy"], row["wall_time_s"]) == pytest.approx((0.6, 10.0))
    assert row["accuracy_half_width"] == pytest.approx(
        12.706 * 0.1, rel=1e-4
    )  # of 0.5 and 0.7, by Student's factor of two
    assert row["seconds_per_step"] == pytest.approx(1.0)


def test_a_run_with_another_end_is_not_finished(tmp_path):
    """More steps by an override that names do not tell: what the run had before is not its result any more."""
    [run] = expand([DEMO], {}, [0], tmp_path)
    run.workdir.mkdir(parents=True)
    (run.workdir / "config.json").write_text(json.dumps(to_dict(load_config(DEMO, ["seed=0"]))))
    (run.workdir / "summary.json").write_text("{}")
    assert run.state() == "finished"
    for end in ("training.num_steps=1000", "training.max_minutes=5"):
        [other] = expand([DEMO], {}, [0], tmp_path, [end])
        assert (other.state(), other.summary()) == ("started", None)


def test_a_run_that_says_it_is_done_without_a_summary_has_failed(tmp_path):
    (tmp_path / "idle.py").write_text("")
    [(_, problem)] = Sweep(tmp_path / "idle.py").run(expand([DEMO], {}, [0], tmp_path))
    assert problem.startswith("exit code 0: no output")
    assert table(expand([DEMO], {}, [0], tmp_path)) == {"demo": {"finished": 0}}


@pytest.mark.skipif(not processor.can_pin() or len(processor.cores()) < 2, reason="needs two cores to bind to")
def test_runs_at_a_time_on_cores_of_their_own(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_SECONDS", "1")
    runs = expand([DEMO], {}, [2, 3, 4, 5], tmp_path)
    assert [problem for _, problem in Sweep(fake, workers=2, cores_per_run=1).run(runs)] == [None] * 4
    cores = {(run.workdir / "log.txt").read_text() for run in runs}
    assert len(cores) == 2
    assert all(text.count(",") == 0 for text in cores)


def test_stopping_early_ends_what_runs(fake, tmp_path, monkeypatch):
    runs = expand([DEMO], {}, [0, 2, 3], tmp_path)
    sweep = Sweep(fake).run(runs)
    next(sweep)
    monkeypatch.setenv("FAKE_SECONDS", "600")
    start = time.monotonic()
    sweep.close()
    assert time.monotonic() - start < 60
    assert runs[2].state() == "new"


def test_a_sweep_of_two_runs_from_the_command_line(tiny, tmp_path):
    """Two seeds train while another setting fails; then there is nothing to do; the exit code tells."""
    tiny.training.num_steps, tiny.training.eval_every_steps = 2, 0
    config = tmp_path / "tiny.py"
    config.write_text(
        f"import json\nfrom ml_collections import ConfigDict\n\ndef get_config():\n"
        f"    return ConfigDict(json.loads({json.dumps(tiny.to_dict())!r}))\n"
    )

    command = [ROOT / "experiments/sweep.py", "--config", config, "--workdir", tmp_path / "runs"]
    command += ["--seeds", "0-1", "--set", "data.path=None,nowhere"]

    def sweep(*arguments):
        return forked.run([*command, *arguments])

    first = subprocess.run([sys.executable, *command, "--json"], capture_output=True, text=True)
    assert first.returncode == 1, first.stdout + first.stderr
    summary = json.loads(first.stdout.splitlines()[-1])
    assert {k: v["finished"] for k, v in summary["groups"].items()} == {
        "tiny,data.path=None": 2,
        "tiny,data.path=nowhere": 0,
    }
    assert summary["failed"].keys() == {f"tiny,data.path=nowhere/seed={s}" for s in (0, 1)}
    assert all("there is nothing to read" in problem for problem in summary["failed"].values())
    records = [read_run(tmp_path / f"runs/tiny,data.path=None/seed={s}") for s in (0, 1)]
    assert [r.config["seed"] for r in records] == [0, 1]
    assert [[m["step"] for m in r.metrics] for r in records] == [[1, 2], [1, 2]]
    assert sweep("--dry-run").stdout.split()[1::3] == ["finished", "new", "finished", "new"]
    one = sweep("--index", "2")
    assert (one.returncode, "1 run(s), 1 finished, 0 to do" in one.stdout) == (0, True)
    assert sweep("--index", "7").stderr == "error: --index 7: there are runs 0 to 3\n"
