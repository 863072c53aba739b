"""Workdirs to figures, numbers and words."""

import json
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import forked
import numpy as np
import pytest
from made_runs import make_run, make_study

from pods_jax.analysis.comparison import (
    View,
    choose,
    draw,
    interval_in_words,
    panel_of,
    speed_up_in_words,
    with_half_width,
)
from pods_jax.analysis.run_groups import main_sizes, read_groups
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
        command = [ROOT / "experiments/figures.py", "--runs", study, "--out", tmp_path / "figs"]
        done = forked.run([*command, *arguments])
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "figs").exists()


@pytest.mark.parametrize(
    ("given", "message"), [({"window": 0}, "window"), ({"window": -1}, "window"), ({"target": 0.0}, "target")]
)
def test_a_view_is_checked(given, message):
    with pytest.raises(UserError, match=f"the {message} must be"):
        View(**given)


def test_a_target_in_per_cent_is_refused_only_for_shares(study, tmp_path):
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


@pytest.mark.parametrize(
    ("baseline", "method", "ratio", "interval", "words"),
    [
        (3.0, 2.0, 1.5, (1.0, 2.0), "1.50x [1.00, 2.00]"),
        (3.0, 2.0, 1.5, (0.0, inf), "1.50x [0.00, no bound]"),
        (3.0, 2.0, 1.5, (nan, nan), "1.50x"),
        (3.0, 2.0, 1.5, (1.5, 1.5), "1.50x [unknown]"),
        (3.0, inf, 0.0, (0.0, 0.0), "not reached"),
        (inf, inf, nan, (nan, nan), "not reached"),
        (3.0, 0.0, inf, (nan, nan), "reached before training"),
        (0.0, 0.0, nan, (nan, nan), "reached before training"),
        (0.0, 2.0, 0.0, (0.0, 0.0), "reached, and by the baseline before training"),
        (inf, 2.0, inf, (nan, nan), "reached, and not by the baseline"),
    ],
)
def test_a_speed_up_is_a_ratio_or_words(baseline, method, ratio, interval, words):
    numbers = {"baseline": baseline, "method": method, "ratio": ratio, "low": interval[0], "high": interval[1]}
    assert speed_up_in_words(numbers) == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(2.23, 2.23, "unknown"), (nan, nan, "unknown"), (1.0, inf, "1.00 to no bound"), (1.0, 2.345, "1.00 to 2.35")],
)
def test_an_interval_without_width_is_unknown(low, high, words):
    assert interval_in_words(low, high) == words


def test_one_run_has_no_half_width():
    assert with_half_width(0.5, 0.01) == "0.5000 +- 0.0100"
    assert with_half_width(0.5, nan) == "0.5000"


def change(workdir, **values):
    """Writes other values, by "section__key", into the config of a workdir."""
    config = json.loads((workdir / "config.json").read_text())
    for name, value in values.items():
        section, _, key = name.partition("__")
        config[section][key] = value
    (workdir / "config.json").write_text(json.dumps(config))


def without(workdir, key):
    """Takes a quantity out of all evaluations of a workdir."""
    evals = [json.loads(line) for line in (workdir / "eval.jsonl").read_text().splitlines()]
    lines = [json.dumps({k: v for k, v in e.items() if k != key}) + "\n" for e in evals]
    (workdir / "eval.jsonl").write_text("".join(lines))


def test_runs_on_two_data_sets_have_figures_and_baselines_of_their_own(tmp_path):
    for data_set, options in (("addition", {"digits": 2}), ("addition", {"digits": 5}), ("gsm8k", {})):
        for method, (n, rule) in {"pods": (8, "max_variance"), "grpo": (4, "all")}.items():
            name = f"{data_set}-{options.get('digits')}-{method}"
            change(
                make_run(tmp_path / name, n=n, m=4, rule=rule, seed=0, rate=1.0),
                data__name=data_set, data__options=options,
            )  # fmt: skip
    drawn = draw(tmp_path, tmp_path / "figs", View())
    data_sets = ["addition, digits = 2", "addition, digits = 5", "gsm8k"]
    assert list(drawn["groups"]) == [f"{d}: {m}" for d in data_sets for m in ("GRPO", "PODS")]
    assert [g["data_set"] for g in drawn["groups"].values()] == [d for d in data_sets for _ in "gp"]
    for data_set in data_sets:
        assert list(drawn["groups"][f"{data_set}: PODS"]["speed_up_over"]) == [f"{data_set}: GRPO"]
    files = {path.name for path in (tmp_path / "figs").iterdir()}
    kinds = ("methods", "n_scaling", "lengths")
    assert files == {f"{k}_{d}.png" for k in kinds for d in ("addition_digits=2", "addition_digits=5", "gsm8k")}
    assert {Path(f).name for f in drawn["figures"]} == files
    assert drawn["warnings"] == []


def test_a_run_without_the_metric_is_named_and_skipped(tmp_path):
    runs = [make_run(tmp_path / str(s), n=8, m=4, rule="max_variance", seed=s, rate=1.0) for s in (0, 1)]
    without(runs[1], "accuracy")
    drawn = draw(tmp_path, tmp_path / "figs", View())
    assert drawn["groups"]["PODS"]["num_runs"] == 1
    assert drawn["warnings"] == [f"{runs[1]} is left out: its evaluations have no 'accuracy'"]
    without(runs[0], "mean_length")
    assert [Path(f).stem for f in draw(tmp_path, tmp_path / "figs", View())["figures"]] == ["methods"]


def test_a_group_that_no_figure_shows_is_named(tmp_path):
    for n, m in ((64, 16), (32, 16), (8, 4)):
        for seed in range(2 if n == 64 else 1):
            make_run(tmp_path / f"{n}-{m}-{seed}", n=n, m=m, rule="max_variance", seed=seed, rate=1.0)
    assert draw(tmp_path, tmp_path / "figs", View())["warnings"] == [
        "PODS, n = 8, m = 4 is in no figure: it has n = 8 and m = 4, and most runs have n = 64 and m = 16"
    ]


def test_the_last_accuracy_is_each_runs_own(tmp_path):
    """Seeds end at different times, and the curves over time with the first of them."""
    for seed, slower in ((0, 1.0), (1, 2.0)):
        run = make_run(tmp_path / str(seed), n=8, m=4, rule="max_variance", seed=seed, rate=1.0)
        evals = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
        rising = [e | {"accuracy": e["step"] / 100, "wall_time_s": slower * e["wall_time_s"]} for e in evals]
        (run / "eval.jsonl").write_text("".join(json.dumps(e) + "\n" for e in rising))
    numbers = draw(tmp_path, tmp_path / "figs", View())["groups"]["PODS"]
    assert numbers["last"] == pytest.approx(0.4)
    assert numbers["last_half_width"] == 0.0
    assert numbers["peak"] == pytest.approx((0.4 + 0.2) / 2)
    smoothed = draw(tmp_path, tmp_path / "figs", View(window=3))["groups"]["PODS"]
    assert smoothed["last"] == pytest.approx(np.mean([0.32, 0.36, 0.40]))
