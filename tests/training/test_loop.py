"""Whole runs: what they write, that they repeat, resume to the bit, and refuse what they should."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from pods_jax.analysis.runs import read_run, sample_text
from pods_jax.config.schema import from_mapping
from pods_jax.data import DATASETS
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl
from pods_jax.rewards import RewardPool
from pods_jax.training import Reporter, evaluate_checkpoint, train
from pods_jax.training.loop import _scores
from pods_jax.training.prompts import load_data, load_dataset
from pods_jax.training.run import make_run
from pods_jax.training.step import train_step
from pods_jax.training.workdir import Workdir, refuse_other_config

DYING_RUN = """
import json, os, signal, sys
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train

class Dies(Reporter):
    def step(self, metrics):
        self.done = getattr(self, "done", 0) + 1
        if self.done == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

train(from_mapping(json.loads(sys.argv[1]))[0], sys.argv[2], Dies())
"""


def built(config):
    config, problems = from_mapping(config)
    assert not problems
    return config


def untimed(path):
    return [{k: v for k, v in r.items() if "time" not in k} for r in read_jsonl(path)]


def test_a_run_writes_what_it_promises(tiny, tmp_path):
    tiny.evaluation.greedy = True
    summary = train(built(tiny), tmp_path / "run", Reporter())
    run = read_run(tmp_path / "run")
    assert [m["step"] for m in run.metrics] == [1, 2, 3, 4, 5, 6]
    assert [e["step"] for e in run.evals] == [0, 3, 6]
    assert (tmp_path / "run" / "learning_curve.png").stat().st_size > 10_000
    assert any((tmp_path / "run" / "tensorboard").iterdir())
    (sample,) = read_jsonl(tmp_path / "run" / "samples.jsonl")
    assert (sample["step"], len(sample["rewards"]), len(sample["kept"])) == (1, 8, 4)
    assert [r["kept"] for r in sample["rollouts"]] == [True, True, False, False]
    assert (tmp_path / "run" / "samples.txt").read_text() == sample_text(sample)
    last = run.metrics[-1]
    assert last["rollouts/generated"] == 6 * 4 * 8
    assert last["rollouts/trained"] == 6 * 4 * 4
    assert last["tokens/generated"] == pytest.approx(sum(m["completions/mean_length"] * 32 for m in run.metrics))
    assert last["wall_time_s"] == pytest.approx(sum(m["time/step_s"] for m in run.metrics))
    assert all(m["selection/kept_variance"] >= m["selection/group_variance"] for m in run.metrics)
    differences = [m["sampling/sampling_logp_difference/max"] for m in run.metrics]  # None where no group varied
    assert all(x is None or x < 1e-4 for x in differences)
    assert summary["steps"] == 6
    assert {"accuracy", "format", "both", "greedy_accuracy"} <= summary["after"].keys()
    scores = evaluate_checkpoint(built(tiny), tmp_path / "run", Reporter())
    assert scores["accuracy"] == summary["after"]["accuracy"]


def test_the_same_seed_repeats_and_another_does_not(tiny, tmp_path):
    tiny.training.num_steps = 3
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        tiny.seed = seed
        train(built(tiny), tmp_path / name, Reporter())
    a, b, c = (untimed(tmp_path / name / "metrics.jsonl") for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    "change",
    [
        {},
        pytest.param({"objective": {"beta": 0.1, "num_iterations": 2}}, marks=pytest.mark.slow),
        pytest.param(
            {"lora": {"rank": 2}, "objective": {"beta": 0.1, "steps_per_generation": 2}, "optimizer": {"name": "muon"}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["plain", "reference", "lora and muon"],
)
def test_a_killed_run_goes_on_to_the_same_end(tiny, tmp_path, change):
    tiny.update(change)
    config = built(tiny)
    train(config, tmp_path / "whole", Reporter())
    arguments = [json.dumps(tiny.to_dict()), str(tmp_path / "killed"), "5"]
    died = subprocess.run([sys.executable, "-c", DYING_RUN, *arguments], capture_output=True)
    assert died.returncode == -9, died.stderr.decode()
    assert len(read_jsonl(tmp_path / "killed" / "metrics.jsonl")) == 5
    train(config, tmp_path / "killed", Reporter())
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert untimed(tmp_path / "killed" / name) == untimed(tmp_path / "whole" / name)


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(tiny, tmp_path, capsys):
    config = built(tiny)
    train(config, tmp_path / "run", Reporter())
    logs = {name: untimed(tmp_path / "run" / name) for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl")}
    for file in (tmp_path / "run" / "checkpoints" / "6").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    train(config, tmp_path / "run", Reporter())
    assert "the checkpoint at step 6 is damaged" in capsys.readouterr().out
    assert {name: untimed(tmp_path / "run" / name) for name in logs} == logs
    assert (tmp_path / "run" / "checkpoints" / "6").is_dir()


@pytest.mark.parametrize("lost", [{"metrics.jsonl": [3, 4]}, {"metrics.jsonl": [2], "eval.jsonl": [0, 3, 6]}])
def test_lines_that_are_lost_before_the_checkpoint_are_told(tiny, tmp_path, capsys, lost):
    config = built(tiny)
    whole = train(config, tmp_path / "run", Reporter())
    train(config, tmp_path / "run", Reporter())
    assert "lacks" not in capsys.readouterr().out
    for name, steps in lost.items():
        file = tmp_path / "run" / name
        kept = [line for line in file.read_text().splitlines(True) if json.loads(line)["step"] not in steps]
        file.write_text("".join(kept))
    summary = train(config, tmp_path / "run", Reporter())
    told = capsys.readouterr().out
    for name, steps in lost.items():
        count = {"metrics.jsonl": 6, "eval.jsonl": 3}[name]
        assert f"warning  {name} lacks {len(steps)} of {count} lines, the first of step {steps[0]}" in told
    assert summary["before"] == ({} if "eval.jsonl" in lost else whole["before"])
    assert summary["after"] == whole["after"]


def test_the_best_policy_is_saved_and_kept(tiny, tmp_path):
    tiny.training.checkpoint_every_steps, tiny.training.eval_every_steps, tiny.training.num_steps = 0, 1, 8
    tiny.training.keep_checkpoints = 1
    train(built(tiny), tmp_path / "run", Reporter())
    evals = {e["step"]: e["accuracy"] for e in read_jsonl(tmp_path / "run" / "eval.jsonl") if e["step"]}
    best = max(evals, key=evals.get)
    assert {int(p.name) for p in (tmp_path / "run" / "checkpoints").iterdir()} == {best, 8}
    assert evaluate_checkpoint(built(tiny), tmp_path / "run", Reporter(), "best")["accuracy"] == evals[best]
    with pytest.raises(UserError, match="holds no checkpoint 'worst'"):
        evaluate_checkpoint(built(tiny), tmp_path / "run", Reporter(), "worst")


def test_a_full_disk_is_one_line(tiny, tmp_path):
    folder = Workdir(tmp_path / "run", built(tiny))
    (folder.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"run cannot be written: No space left on device"):
        folder.append("metrics.jsonl", {"step": 1})


def test_an_update_that_is_skipped_counts_nothing(tiny, tmp_path):
    """The first of a step's two updates is skipped: its group is not trained on, and no number is lost to NaN."""
    tiny.reward.parts, tiny.reward.functions = {"odd": 1.0}, {"odd": f"{__name__}:every_other"}
    tiny.objective.steps_per_generation = 2
    tiny.training.num_steps = 2
    tiny.optimizer.lr_scheduler_type, tiny.optimizer.warmup_steps = "linear", 0
    config, _ = from_mapping(tiny)
    with RewardPool(1) as pool:
        run = make_run(config, load_data(config), pool, lambda *_: None)
        update, calls = run.update, []

        def sometimes_skipped(state, batch, base):
            calls.append(1)
            if len(calls) == 1:
                batch = batch._replace(advantages=batch.advantages + float("nan"))
            return update(state, batch, base)

        run.update = sometimes_skipped
        first, _ = train_step(run, 1)
        generated = run.totals["rollouts/trained"]
        second, _ = train_step(run, 2)
    assert first["skipped_updates"] == 1
    assert np.isfinite(first["loss"])
    assert 0 < generated < config.rollout.num_prompts * config.selection.num_kept
    rate = config.optimizer.learning_rate
    assert first["learning_rate"] == pytest.approx(rate)
    assert second["learning_rate"] == pytest.approx(rate * 3 / 4)  # of four updates one has changed the parameters


def test_too_many_skipped_updates_stop_the_run(tiny, tmp_path):
    """The first update of step 1 sends the weights where nothing is finite any more."""
    tiny.reward.parts, tiny.reward.functions = {"odd": 1.0}, {"odd": f"{__name__}:every_other"}
    tiny.objective.num_iterations, tiny.training.max_skipped_updates, tiny.optimizer.learning_rate = 2, 3, 1e30
    with pytest.raises(UserError, match=r"step 2: .* not finite in the last 3 updates.*skipped_batch_step_2.npz"):
        train(built(tiny), tmp_path / "run", Reporter())
    (line,) = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert line["skipped_updates"] == 1
    with np.load(tmp_path / "run" / "skipped_batch_step_2.npz") as batch:
        assert batch["completions"].shape[:2] == (4, 4)


def test_a_step_without_an_update_is_whole(tiny, tmp_path):
    """With one update a step, all of step 2's is skipped: it trains on nothing, and the run goes on until three are."""
    tiny.reward.parts, tiny.reward.functions = {"odd": 1.0}, {"odd": f"{__name__}:every_other"}
    tiny.training.max_skipped_updates, tiny.optimizer.learning_rate = 3, 1e30
    with pytest.raises(UserError, match=r"step 4: .* not finite in the last 3 updates.*skipped_batch_step_4.npz"):
        train(built(tiny), tmp_path / "run", Reporter())
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [line["skipped_updates"] for line in lines] == [0, 1, 1]
    assert [line["rollouts/trained"] for line in lines] == [16, 16, 16]
    assert [line["rollouts/discarded"] for line in lines] == [16, 48, 80]


def every_other(completions, **columns):
    return [float(i % 2) for i, _ in enumerate(completions)]


def test_how_a_run_is_computed_may_change_when_it_goes_on(tiny, tmp_path):
    tiny.training.num_steps = 2
    train(built(tiny), tmp_path / "run", Reporter())
    tiny.optimizer.micro_batch_size_per_device, tiny.mesh.data, tiny.training.keep_checkpoints = 8, 1, 3
    train(built(tiny), tmp_path / "run", Reporter())
    assert read_run(tmp_path / "run").config["training"]["keep_checkpoints"] == 3


def test_a_finished_run_is_left_as_it_is(tiny, tmp_path):
    first = train(built(tiny), tmp_path / "run", Reporter())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert train(built(tiny), tmp_path / "run", Reporter()) == first
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == lines


class Dies(Reporter):
    def step(self, metrics):
        raise RuntimeError("killed")


def test_a_run_that_goes_on_past_its_end_is_not_finished(tiny, tmp_path):
    tiny.training.num_steps = 2
    train(built(tiny), tmp_path / "run", Reporter())
    assert read_run(tmp_path / "run").finished
    tiny.training.num_steps = 4
    with pytest.raises(RuntimeError, match="killed"):
        train(built(tiny), tmp_path / "run", Dies())
    assert not read_run(tmp_path / "run").finished
    assert train(built(tiny), tmp_path / "run", Reporter())["steps"] == 4
    assert read_run(tmp_path / "run").finished


def test_a_summary_has_the_scores_of_every_set():
    record = {"step": 3, "rounds": 4, "wall_time_s": 1.0, "time/eval_s": 2.0, "tokens/trained": 5.0}
    scores = {"accuracy": 0.5, "stepgame/accuracy": 0.25, "rounds_of/accuracy": 0.75}
    assert _scores(record | scores) == scores


def test_max_minutes_stops_early(tiny, tmp_path):
    tiny.training.max_minutes = 1e-9
    first = train(built(tiny), tmp_path / "run", Reporter())
    assert first["steps"] == 1
    evaluations = (tmp_path / "run" / "eval.jsonl").read_text()
    assert train(built(tiny), tmp_path / "run", Reporter()) == first
    assert (tmp_path / "run" / "eval.jsonl").read_text() == evaluations


def test_a_workdir_of_another_config_is_refused_once_a_step_was_taken(tiny, tmp_path):
    workdir = Workdir(tmp_path, built(tiny))
    tiny.seed = 7
    refuse_other_config(tmp_path, built(tiny))
    workdir.append("metrics.jsonl", {"step": 1})
    with pytest.raises(UserError, match="seed: 0 there, 7 here"):
        train(built(tiny), tmp_path, Reporter())


def test_a_live_workdir_is_refused(tiny, tmp_path):
    live = Workdir(tmp_path, built(tiny))
    with pytest.raises(UserError, match="in use by another run"):
        train(built(tiny), live.path, Reporter())


def test_an_unwritable_workdir_is_refused(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        train(built(tiny), tmp_path / "file" / "run", Reporter())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rollout": {"max_prompt_length": 3}},
            "training set: every prompt is longer than .*_prompt_length = 3",
        ),
        ({"model": {"path": "/no/such/model"}}, "no model at '/no/such/model'"),
        ({"data": {"path": "x.jsonl"}}, "generated, there is nothing to read"),
        ({"data": {"options": {"bas": 3}}}, "unknown key 'bas'.*did you mean 'base'"),
    ],
)
def test_bad_input_leaves_no_trace(tiny, tmp_path, change, message):
    tiny.update(change)
    with pytest.raises(UserError, match=message):
        train(built(tiny), tmp_path / "run", Reporter())
    assert not (tmp_path / "run").exists()


def test_a_warm_start_without_demonstrations_leaves_no_trace(tiny, tmp_path, monkeypatch):
    silent = dataclasses.replace(load_dataset(built(tiny)), demonstrate=None)
    monkeypatch.setitem(DATASETS._parts, "silent", lambda path, options, seed: silent)
    tiny.data.name, tiny.warm_start.num_steps = "silent", 1
    with pytest.raises(UserError, match=r"'silent' has no demonstrations to start from: warm_start\.num_steps = 0"):
        train(built(tiny), tmp_path / "run", Reporter())
    assert not (tmp_path / "run").exists()


def test_a_missing_data_path_leaves_no_trace(tiny, tmp_path):
    tiny.data.name, tiny.data.path, tiny.data.options = "gsm8k", "/no/such/data", {}
    with pytest.raises(UserError, match="/no/such/data"):
        train(built(tiny), tmp_path / "run", Reporter())
    assert not (tmp_path / "run").exists()


def test_a_torn_line_is_left_out(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_jsonl(tmp_path / "log.jsonl") == [{"step": 1}, {"step": 2}]


def test_a_policy_learns_from_nothing_but_reward(tiny, tmp_path):
    """Single digits without a warm start: the reward rises from chance to most of what is possible."""
    tiny.data.options = {"base": 2, "digits": 1, "num_train": 2, "num_test": 2}
    tiny.rollout.max_prompt_length = tiny.rollout.max_completion_length = 3
    tiny.rollout.num_prompts, tiny.rollout.num_generations, tiny.selection.num_kept = 4, 32, 8
    tiny.training.num_steps, tiny.training.eval_every_steps = 40, 0
    tiny.evaluation.num_prompts = 2
    train(built(tiny), tmp_path / "run", Reporter())
    rewards = [m["reward"] for m in read_run(tmp_path / "run").metrics]
    assert np.mean(rewards[:5]) < 0.5 < 0.8 < np.mean(rewards[-5:])
