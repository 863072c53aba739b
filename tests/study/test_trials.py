"""Trials of a language model: their order, the choice of rates, and records that a study goes on from."""

import dataclasses
import json

import pytest
from made_study import make_run
from study.curve_files import write_curve_file
from study.extents import Extent, Setting
from study.smollm2 import FULL_EXTENT, METHODS, QUICK_EXTENT
from study.trials import Record, Trial, chosen_rate, make_all, next_trials, overrides_of, read_records

from pods_jax.config.load import load_config
from pods_jax.config.validate import validate_on_devices
from pods_jax.errors import UserError

SETTINGS = [Setting("a-P1", "configs/demo.py:grpo", {}), Setting("b-P1", "configs/demo.py:grpo", {})]
EXTENT = Extent(SETTINGS, METHODS, waves=(("grpo", "pods", "random"), ("pilot_commit",)), seeds=range(2))
BEST = {"grpo": 4e-5, "pods": 2e-5, "pilot_commit": 1e-5}


def scored(trial):
    """A record whose score is highest at the method's best rate."""
    score = 0.9 if trial.rate == pytest.approx(BEST[METHODS[trial.method].rate_of or trial.method]) else 0.1
    return Record(trial, (), {"accuracy": [0.0, score, score]}, 0.1)


@pytest.fixture(scope="module")
def made():
    """All trials in the order in which they are asked for."""
    records = {}
    while trials := next_trials(EXTENT, records):
        assert trials[0] not in records
        records[trials[0]] = scored(trials[0])
    return records


def test_every_method_has_every_seed_at_its_own_best_rate(made):
    reported = [t for t in made if t.seed in EXTENT.seeds]
    assert {(t.setting, t.method, t.seed) for t in reported} == {
        (s.name, m, seed) for s in SETTINGS for m in (*BEST, "random") for seed in (0, 1)
    }
    assert all(t.rate == pytest.approx(BEST["grpo" if t.method == "random" else t.method]) for t in reported)
    assert chosen_rate(EXTENT, made, "a-P1", "random") == pytest.approx(4e-5)


def test_rates_are_chosen_before_seeds_and_seeds_are_made_in_turns(made):
    first = [t for t in made if t.setting == "a-P1"]
    assert list(made)[: len(first)] == first
    wave = [t for t in first if t.method != "pilot_commit"]
    assert first[: len(wave)] == wave
    tuning = [t for t in wave if t.seed == 100]
    assert wave[: len(tuning)] == tuning
    assert [(t.method, t.seed) for t in wave[len(tuning) :]] == [
        (m, s) for s in (0, 1) for m in ("grpo", "pods", "random")
    ]


def test_a_study_cut_short_has_the_first_seeds_and_all_that_choose_rates():
    assert (list(EXTENT.cut(1).seeds), EXTENT.cut(1).tuning_seeds) == ([0], EXTENT.tuning_seeds)
    assert list(EXTENT.cut(None).seeds) == [0, 1]


def test_reported_seeds_do_not_choose_rates(made):
    other = dict(made)
    for trial in made:
        if trial.seed != 100:
            other[trial] = Record(trial, (), {"accuracy": [0.0, 1.0]}, 0.1)
    assert chosen_rate(EXTENT, other, "a-P1", "grpo") == chosen_rate(EXTENT, made, "a-P1", "grpo")


@pytest.mark.parametrize("extent", [FULL_EXTENT, QUICK_EXTENT], ids=["full", "quick"])
def test_every_config_is_valid(extent):
    for setting in extent.settings:
        for method in METHODS:
            overrides = overrides_of(extent, Trial(setting.name, method, 1e-5, 0))
            config = load_config(setting.spec, overrides)
            validate_on_devices(config, 1)
            assert config.rollout.num_generations * config.rollout.num_prompts > 0
    assert not set(extent.seeds) & set(extent.tuning_seeds)


def test_methods_are_of_the_sizes_that_their_names_say():
    setting = FULL_EXTENT.settings[0]
    found = {m: load_config(setting.spec, overrides_of(FULL_EXTENT, Trial(setting.name, m, 1e-5, 0))) for m in METHODS}
    sizes = {m: (c.rollout.num_generations, c.selection.num_kept, c.selection.rule) for m, c in found.items()}
    assert sizes == {
        "grpo": (4, 4, "all"), "pods": (16, 4, "max_variance"), "random": (16, 4, "random"),
        "grpo_ga": (16, 16, "all"), "pods_32": (32, 4, "max_variance"), "pilot_commit": (16, 16, "all"),
    }  # fmt: skip
    assert all(c.optimizer.micro_batch_size_per_device == c.selection.num_kept for c in found.values())
    optimizers = {dataclasses.replace(c.optimizer, micro_batch_size_per_device=None) for c in found.values()}
    others = {(c.data, c.evaluation, c.training, c.model) for c in found.values()}
    assert len(optimizers) == len(others) == 1


# ---------------------------------------------------------------- records


def finished_run(folder):
    make_run(folder, 0.02, 0)
    lines = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**e, "greedy_accuracy": e["accuracy"]}) + "\n" for e in lines)
    (folder / "eval.jsonl").write_text(text)
    return folder


def test_a_study_goes_on_from_its_records(tmp_path):
    runs = []

    def make(trials):
        for trial, _ in trials:
            runs.append(trial)
            yield trial, finished_run(tmp_path / "work" / trial.name) if len(runs) != 4 else "no luck"

    records = tmp_path / "records"
    records.mkdir()
    failed = make_all(EXTENT, records, make)
    assert failed == {runs[3].name: "no luck"}
    assert len(read_records(EXTENT, records)) == len(runs) - 1
    assert not make_all(EXTENT, records, make)
    assert runs.count(runs[3]) == 2
    assert len(set(runs)) == len(runs) - 1


def test_all_trials_are_made_at_once_that_can_be_named(tmp_path):
    sizes = []

    def make(trials):
        sizes.append(len(trials))
        return [(t, finished_run(tmp_path / "work" / t.name)) for t, _ in trials]

    (tmp_path / "records").mkdir()
    make_all(EXTENT, tmp_path / "records", make)
    made = read_records(EXTENT, tmp_path / "records")
    assert sum(sizes) == len(made)
    assert sizes[0] == 2  # the first rates of GRPO and PODS; random has GRPO's
    assert max(sizes) == 6  # two seeds of a wave of three
    assert {t.seed for t in made if t.method == "random"} == {0, 1}


def test_keys_of_a_method_in_a_setting_and_of_the_seed_are_part_of_a_trial():
    setting = Setting("a", "x", {"k": 1, "n": 2}, by_method={"pods": {"n": 3}}, seeded=("warm_start.seed",))
    extent = Extent([setting], {"pods": METHODS["pods"], "grpo": METHODS["grpo"]}, waves=(("pods",),))
    own, other = (overrides_of(extent, Trial("a", m, 1e-5, 7)) for m in ("pods", "grpo"))
    assert {"k=1", "n=3", "warm_start.seed=7", "optimizer.learning_rate=1e-05"} <= set(own)
    assert {"n=2", "warm_start.seed=7"} <= set(other)


def test_a_record_is_small_whole_and_of_one_definition(tmp_path):
    trial = Trial("a-P1", "pods", 2e-5, 0)
    overrides = overrides_of(EXTENT, trial)
    file = tmp_path / f"{trial.name}.json"
    run = finished_run(tmp_path / "run")
    written = write_curve_file(file, dataclasses.asdict(trial), overrides, run, "greedy_accuracy")
    assert file.stat().st_size < 5000
    read = read_records(EXTENT, tmp_path)[trial]
    assert (read.trial, read.overrides, read.curve) == (trial, overrides, written["curve"])
    assert read.curve["rollouts/generated"][-1] == 160 * 1024
    assert read.hours == 1.0
    file.write_text(file.read_text().replace("rate=2e-05", "rate=3e-05"))
    with pytest.raises(UserError, match="another definition"):
        read_records(EXTENT, tmp_path)
    file.write_text("{}")
    with pytest.raises(UserError, match="no file of a run"):
        read_records(EXTENT, tmp_path)
