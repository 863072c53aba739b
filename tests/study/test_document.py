"""docs/results.md says what docs/results/*.json say, and the numbers there follow from those of the seeds."""

import copy
import math
import re
from pathlib import Path

import pytest
from study import regime, tables
from study.definition import ALLOCATION, ANSWERS, LEARNING, VARIANTS
from study.document import blocks_of
from study.smollm2 import FULL_EXTENT
from study.stages import read_results, regime_results
from study.trial_tables import trial_table
from study.trials import read_records

from pods_jax.io import finite

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "results.md").read_text()
RESULTS = read_results(DOCS / "results")


def test_the_tables_of_the_document_are_those_of_the_numbers():
    assert RESULTS
    for name, block in blocks_of(RESULTS).items():
        assert f"<!-- study:{name} -->\n{block}\n<!-- end -->" in TEXT, name


def test_every_interval_of_the_prose_is_in_a_table():
    tables_text = "".join(re.findall(r"<!-- study:.*?<!-- end -->", TEXT, re.DOTALL)).replace("x [", " [")
    prose = re.sub(r"<!-- study:.*?<!-- end -->", "", TEXT, flags=re.DOTALL).replace("\n", " ")
    found = re.findall(r"\d\.\d\d \[\d\.\d\d, +\d\.\d\d\]", prose)
    assert len(found) > 10
    found += re.findall(r"\d+\.\d % +\[\d+\.\d, +\d+\.\d\]", prose)
    assert "±" not in prose
    assert [interval for interval in found if re.sub(" +", " ", interval) not in tables_text] == []


def test_every_figure_of_the_document_is_there():
    figures = {file.name for file in (DOCS / "results").glob("*.png")}
    assert {name for name in figures if f"(results/{name})" not in TEXT} == set()
    assert TEXT.count("](results/") == len(figures)


@pytest.mark.parametrize("name", ALLOCATION)
def test_rollouts_and_their_ratios_follow_from_those_of_the_seeds(name):
    numbers = RESULTS[name]
    for target in map(str, numbers["targets"]):
        spent = {
            variant: [math.inf if s is None else s for s in row["rollouts_to"][target]["by_seed"]]
            for variant, row in numbers["rows"].items()
        }
        shared = tables.shared_seeds(list(spent.values()))
        for variant, row in numbers["rows"].items():
            mean = math.exp(sum(math.log(spent[variant][i]) for i in shared) / len(shared))
            assert row["rollouts_to"][target]["value"] == pytest.approx(mean)
            assert row["rollouts_to"][target]["reached"] == sum(map(math.isfinite, spent[variant]))
        for baseline, ratios in numbers["ratios"].items():
            for variant, found in ratios.items():
                paired = tables.paired_rollouts(numbers["rows"][baseline], numbers["rows"][variant], target)
                assert found[target]["paired"] == pytest.approx(paired)
                equal = tables.equal_budgets(numbers["rows"][baseline], numbers["rows"][variant], target)
                assert found[target]["equal_budgets"] == pytest.approx(equal)


def test_numbers_of_the_map_of_regimes_follow_from_the_records_of_its_runs():
    assert finite(regime_results(regime.FULL, DOCS / "results" / "regime")) == RESULTS["regime"]


def test_numbers_of_the_language_model_follow_from_the_records_of_its_runs():
    records = read_records(FULL_EXTENT, DOCS / "results" / "smollm2")
    assert finite(trial_table(FULL_EXTENT, records)) == RESULTS["smollm2"]


@pytest.mark.parametrize("name", [*LEARNING, *ALLOCATION])
def test_tables_follow_from_the_files_of_their_runs(name):
    runs = DOCS / "results" / "runs"
    table = (LEARNING | ALLOCATION)[name]
    if not all((runs / variant).is_dir() for variant in table.variants):
        pytest.skip("the curves of these runs were not kept")
    if name in ALLOCATION:
        derived = tables.allocation_table(table, runs)
    else:
        derived = tables.learning_table(table, runs, RESULTS[table.costs])
    assert finite(derived) == RESULTS[name]


def test_every_answer_is_measured():
    for answer in ANSWERS:
        assert {answer.baseline, answer.variant} <= VARIANTS.keys()
        ratios = RESULTS[answer.table].get("speed_ups") or RESULTS[answer.table]["ratios"]
        assert str(answer.threshold) in ratios[answer.baseline][answer.variant]


def test_a_quick_study_answers_what_it_has_measured():
    results = copy.deepcopy(RESULTS)
    for by_variant in results["small_batch"]["ratios"].values():
        by_variant.pop("small-pilot_commit", None)
    rows = {"full": blocks_of(RESULTS)["answer"], "quick": blocks_of(results)["answer"]}
    assert [rows[study].count("`small_batch`") for study in rows] == [2, 0]
    del results["larger"]
    assert "answer" not in blocks_of(results)
