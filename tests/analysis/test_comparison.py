"""Workdirs to groups, and groups to figures and numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import make_run, make_study

from pods_jax.analysis.compare import View, choose, draw, main_sizes, method_of, panel_of, read_groups
from pods_jax.errors import UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    make_study(folder)
    return folder


def test_runs_are_grouped_by_config_with_seeds_apart(study):
    groups = {g.label: g for g in read_groups(study)}
    assert {label: (g.method, g.n, g.m, len(g.runs)) for label, g in groups.items()} == {
        "GRPO": ("grpo", 16, 16, 3),
        "GRPO-GA": ("grpo_ga", 64, 64, 3),
        "random": ("random", 64, 16, 3),
        "Pilot-Commit": ("pilot_commit", 64, 64, 1),
        "PODS, n = 64, m = 16": ("pods", 64, 16, 3),
        "PODS, n = 32, m = 16": ("pods", 32, 16, 3),
        "PODS, n = 128, m = 16": ("pods", 128, 16, 3),
        "PODS, n = 64, m = 4": ("pods", 64, 4, 3),
    }
    assert main_sizes(list(groups.values())) == (64, 16)
    assert sorted(r.config["seed"] for r in groups["GRPO"].runs) == [0, 1, 2]


def test_which_groups_a_figure_shows(study):
    figures = {k: [g.label for g in v] for k, v in choose(read_groups(study)).items()}
    assert sorted(figures["methods"]) == ["GRPO", "GRPO-GA", "PODS, n = 64, m = 16", "Pilot-Commit", "random"]
    assert figures["n_scaling"] == ["GRPO", *(f"PODS, n = {n}, m = 16" for n in (32, 64, 128))]
    assert figures["m_scaling"] == ["PODS, n = 64, m = 4", "PODS, n = 64, m = 16"]
    assert sorted(figures["rules"]) == ["PODS, n = 64, m = 16", "random"]


def test_the_command_line(study, tmp_path):
    command = [sys.executable, ROOT / "experiments/figures.py", "--runs", study, "--out", tmp_path, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    numbers = json.loads(done.stdout.splitlines()[-1])
    assert {p.stem for p in tmp_path.iterdir()} == {"methods", "n_scaling", "m_scaling", "rules", "lengths"}
    pods = numbers["groups"]["PODS, n = 64, m = 16"]
    assert pods["seconds_per_step"]["step"] == pytest.approx(0.138)
    assert pods["last"] == pytest.approx(0.9, abs=0.03)
    assert 1.3 < pods["speed_up_over"]["GRPO"]["ratio"] < 2.0
    never = numbers["groups"]["GRPO"]["speed_up_over"]["GRPO-GA"]
    assert [never[k] for k in ("method", "ratio", "low", "high")] == [None] * 4
    assert numbers["warnings"] == []
    alone = numbers["groups"]["Pilot-Commit"]  # one run has no interval
    assert alone["last_half_width"] is None
    assert alone["speed_up_over"]["GRPO"]["ratio"] > 0
    assert alone["speed_up_over"]["GRPO"]["low"] is None
    assert "Pilot-Commit: 1 run(s), last 0.9156, " in done.stdout


def test_bad_arguments_are_one_line_and_nothing_is_drawn(study, tmp_path):
    (tmp_path / "file").write_text("")
    for arguments in (["--out", tmp_path / "file"], ["--window", "0"], ["--target", "0"], ["--target", "90"]):
        command = [sys.executable, ROOT / "experiments/figures.py", "--runs", study, "--out", tmp_path / "figs"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "figs").exists()


@pytest.mark.parametrize(
    ("given", "message"), [({"window": 0}, "window"), ({"window": -1}, "window"), ({"target": 0.0}, "target")]
)
def test_a_view_is_checked(given, message):
    with pytest.raises(UserError, match=f"the {message} must be"):
        View(**given)


def test_a_target_in_per_cent_is_refused_for_shares_alone(study, tmp_path):
    with pytest.raises(UserError, match=r"in \(0, 1\]"):
        draw(study, tmp_path, View(target=90.0))
    lengths = draw(study, tmp_path, View("mean_length", target=5.0))["groups"]["GRPO"]
    assert lengths["rollouts_to_target"] == [0.0] * 3


def test_a_run_that_has_just_begun_does_not_cut_the_others(tmp_path):
    for seed in range(2):
        make_run(tmp_path / f"pods{seed}", n=8, m=4, rule="max_variance", seed=seed, rate=1.0)
    begun = tmp_path / "pods1"
    (begun / "summary.json").unlink()
    (begun / "eval.jsonl").write_text((begun / "eval.jsonl").read_text().splitlines()[0] + "\n")
    numbers = draw(tmp_path, tmp_path / "figs", View(axis="step"))
    assert numbers["groups"]["PODS"]["num_runs"] == 1
    assert numbers["groups"]["PODS"]["peak_at"] > 0
    assert numbers["warnings"] == [f"{begun} is left out: unfinished, evaluated up to step 0, and PODS up to 40"]
    with pytest.warns(UserWarning, match="pods1 is left out"):
        read_groups(tmp_path)


def test_only_what_was_drawn_is_named(study, tmp_path):
    (tmp_path / "old.png").write_bytes(b"")
    figures = {Path(f).name for f in draw(study, tmp_path, View())["figures"]}
    assert figures == {p.name for p in tmp_path.iterdir()} - {"old.png"}


def test_smoothing_and_other_axes(study, tmp_path):
    by_rollouts = draw(study, tmp_path, View(axis="rollouts/generated", window=3))["groups"]
    assert by_rollouts["GRPO"]["peak_at"] == 40 * 16 * 16
    assert by_rollouts["GRPO"]["last"] < draw(study, tmp_path, View())["groups"]["GRPO"]["last"]


def test_lengths_are_in_tokens_and_the_rest_in_per_cent():
    assert panel_of(View("mean_length")).y_label == "completion length (tokens)"
    assert panel_of(View("greedy_accuracy")).y_label == "greedy accuracy (%)"


def test_what_runs_spent_to_a_target(study, tmp_path):
    groups = draw(study, tmp_path, View(target=0.7))["groups"]
    spent = groups["PODS, n = 64, m = 16"]["rollouts_to_target"]
    assert len(spent) == 3
    assert all(rollouts % (4 * 16 * 64) == 0 for rollouts in spent)  # evaluations are 4 steps apart
    seconds = groups["PODS, n = 64, m = 16"]["seconds_to_target"]
    assert [s / 0.138 * 16 * 64 for s in seconds] == pytest.approx(spent)
    never = draw(study, tmp_path, View(target=1.0))["groups"]["GRPO"]
    assert never["rollouts_to_target"] == [None] * 3


def test_variants_that_differ_in_a_value_are_told_apart(tmp_path):
    for rate in (1e-3, 3e-4):
        folder = make_run(tmp_path / f"{rate}", n=8, m=4, rule="max_variance", seed=0, rate=1.0)
        config = json.loads((folder / "config.json").read_text())
        config["optimizer"]["learning_rate"] = rate
        (folder / "config.json").write_text(json.dumps(config))
    assert [g.label for g in read_groups(tmp_path)] == ["PODS, lr = 0.0003", "PODS, lr = 0.001"]
    draw(tmp_path, tmp_path / "figs", View())
    assert {p.stem for p in (tmp_path / "figs").iterdir()} == {"methods", "rules", "lengths"}


def test_curves_that_do_not_move(tmp_path):
    folder = make_run(tmp_path / "a", n=8, m=4, rule="all", seed=0, rate=1.0)
    evals = [json.loads(line) | {"accuracy": 0.0} for line in (folder / "eval.jsonl").read_text().splitlines()]
    (folder / "eval.jsonl").write_text("".join(json.dumps(e) + "\n" for e in evals))
    assert draw(tmp_path, tmp_path / "figs", View())["groups"]["GRPO"]["peak"] == 0.0


def test_no_runs_and_no_such_metric(study, tmp_path):
    with pytest.raises(UserError, match="no workdir"):
        draw(tmp_path, tmp_path / "figs", View())
    with pytest.raises(UserError, match=r"no 'greedy'.*accuracy"):
        draw(study, tmp_path / "figs", View("greedy"))
    assert not (tmp_path / "figs").exists()


def test_rules_of_one_method_are_told_apart(tmp_path):
    for rule in ("max_variance", "max_variance_authors"):
        make_run(tmp_path / rule, n=8, m=4, rule=rule, seed=0, rate=1.0)
    assert [g.label for g in read_groups(tmp_path)] == [
        "PODS, rule = max_variance",
        "PODS, rule = max_variance_authors",
    ]


def test_grpo_that_generates_as_much_a_prompt_in_smaller_groups_is_grpo_ga():
    def config(n, rule, groups):
        return {
            "rollout.num_generations": n,
            "selection.rule": rule,
            "allocation.name": "uniform",
            "allocation.options.groups_per_prompt": groups,
        }

    pods, ga, grpo = config(128, "max_variance", 4), config(32, "all", 16), config(32, "all", 1)
    assert [method_of(c, [pods, ga, grpo]) for c in (pods, ga, grpo)] == ["pods", "grpo_ga", "grpo"]
