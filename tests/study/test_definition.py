"""The study's definition: every run is valid, and the study is quick where it says so."""

import re
from pathlib import Path

import pytest
from study.definition import ALLOCATION, FULL, LEARNING, QUICK, VARIANTS
from study.stages import runs_of
from study.step_costs import config_of

from pods_jax.config.load import load_config
from pods_jax.config.validate import validate_on_devices
from pods_jax.training.sweep import check


@pytest.mark.parametrize("study", [FULL, QUICK], ids=["full", "quick"])
def test_every_config_is_valid_and_every_seed_has_its_warm_start(study, tmp_path):
    runs = [run for part in study.parts for run in runs_of(study, part, tmp_path)]
    first = [run for run in runs if run.seed == 0]
    check(first)
    for run in first:
        validate_on_devices(load_config(run.spec, run.all_overrides), 1)
    assert len({run.workdir for run in runs}) == len(runs)
    assert all(f"warm_start.seed={run.seed}" in run.all_overrides for run in runs)


def test_methods_differ_only_in_n_m_and_rule():
    configs = {name: config_of(FULL, name) for name in LEARNING["main"].variants}
    found = {n: (c.rollout.num_generations, c.selection.num_kept, c.selection.rule) for n, c in configs.items()}
    assert found == {
        "grpo_ga": (64, 64, "all"), "grpo": (16, 16, "all"), "pods": (64, 16, "max_variance"),
        "random": (64, 16, "random"), "max_reward": (64, 16, "max_reward"), "percentile": (64, 16, "percentile"),
    }  # fmt: skip
    assert len({(c.optimizer, c.training, c.data, c.evaluation, c.warm_start) for c in configs.values()}) == 1


def test_tables_and_parts_name_variants():
    tables = [v for t in (*LEARNING.values(), *ALLOCATION.values()) for v in (*t.variants, *t.baselines)]
    made = [v for study in (FULL, QUICK) for part in study.parts.values() for v in part.variants]
    timed = [v for study in (FULL, QUICK) for variants in study.costs.values() for v in variants]
    assert {*tables, *made, *timed} <= VARIANTS.keys()
    assert all(set(t.variants) <= set(FULL.costs[t.costs]) for t in LEARNING.values())
    assert {t for part in FULL.parts.values() for t in part.tables} == {*LEARNING, *ALLOCATION}


def test_the_results_document_has_a_place_for_every_table():
    """Else the whole study ends, after hours, with an error in place of its tables."""
    document = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    places = re.findall(r"<!-- study:(\S+) -->", document)
    assert sorted(places) == sorted([*LEARNING, *ALLOCATION, *FULL.costs, "answer", "smollm2", "regime"])
