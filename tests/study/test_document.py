"""docs/results.md says what docs/results/*.json say, and the numbers there follow from those of the seeds."""

import copy
import math
import shutil
from pathlib import Path

import pytest
from study import plots, regime, tables
from study.definition import ALLOCATION, ANSWERS, FULL, LEARNING
from study.document import blocks_of
from study.estimates import mean_interval
from study.smollm2 import FULL_EXTENT
from study.smollm2_stages import step_costs
from study.stages import read_results, regime_results, write_from_numbers, write_results
from study.trial_tables import trial_table
from study.trials import read_records

from pods_jax.analysis import paper
from pods_jax.analysis.published_file import reader
from pods_jax.errors import UserError
from pods_jax.io import finite, read_json

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "results.md").read_text()
RESULTS = read_results(DOCS / "results")


def test_the_tables_of_the_document_are_those_of_the_numbers():
    assert RESULTS
    for name, block in blocks_of(RESULTS).items():
        assert f"<!-- study:{name} -->\n{block}\n<!-- end -->" in TEXT, name


def test_a_folder_without_numbers_is_refused(tmp_path):
    with pytest.raises(UserError, match="nowhere has no numbers of the study"):
        write_from_numbers(tmp_path / "nowhere", None)
    assert not any(tmp_path.iterdir())


def test_every_figure_of_the_document_is_there():
    figures = {file.name for file in (DOCS / "results").glob("*.png")}
    assert {name for name in figures if f"(results/{name})" not in TEXT} == set()
    assert TEXT.count("](results/") == len(figures)


@pytest.mark.parametrize("name", LEARNING)
def test_times_are_steps_times_their_cost_and_accuracies_those_of_the_seeds(name):
    """What ties the numbers of a table of time to each other, and to the step costs, without its curves."""
    numbers = RESULTS[name]
    costs = RESULTS[LEARNING[name].costs]["variants"]
    for variant, row in numbers["rows"].items():
        assert row["seconds_per_step"] == costs[variant]["seconds"]
        last = mean_interval(row["lasts"])
        assert (row["last"], row["last_half_width"]) == pytest.approx((last.value, last.high - last.value))
        for level, steps in row["steps_to"].items():
            if steps is not None:
                assert row["seconds_to"][level] == pytest.approx(steps * row["seconds_per_step"]["step"])
    for baseline, by_variant in numbers["speed_ups"].items():
        for variant, found in by_variant.items():
            cheaper = costs[baseline]["seconds"]["step"] / costs[variant]["seconds"]["step"]
            for level, ratio in found.items():
                if ratio["ratio"]:
                    assert ratio["ratio"] == pytest.approx(ratio["baseline"] / ratio["method"])
                if level != "99 %" and ratio["steps"]["num"] and not ratio["paired"].get("censored"):
                    for key in ("value", "low", "high"):
                        if ratio["steps"][key] is not None:
                            assert ratio["paired"][key] == pytest.approx(cheaper * ratio["steps"][key])


@pytest.mark.parametrize("name", FULL.costs)
def test_the_fit_of_step_costs_is_that_of_the_measured_ones(name):
    made = ("model", "update_share", "gain", "update_share_for_gain")
    measured = {key: value for key, value in RESULTS[name].items() if key not in made}
    derived = tables.cost_table(measured)
    assert derived["model"] == pytest.approx(RESULTS[name]["model"])
    assert derived["update_share_for_gain"] == pytest.approx(RESULTS[name]["update_share_for_gain"])
    assert [derived[k] for k in made[1:3]] == pytest.approx([RESULTS[name][k] for k in made[1:3]])


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
    folder = DOCS / "results" / "smollm2"
    table = trial_table(FULL_EXTENT, read_records(FULL_EXTENT, folder), step_costs(FULL_EXTENT, folder))
    assert finite(table) == RESULTS["smollm2"]


@pytest.mark.parametrize("name", [*LEARNING, *ALLOCATION])
def test_tables_follow_from_the_files_of_their_runs(name):
    runs = DOCS / "results" / "runs"
    table = (LEARNING | ALLOCATION)[name]
    if name in ALLOCATION:
        derived = tables.allocation_table(table, runs)
    else:
        derived = tables.learning_table(table, runs, RESULTS[table.costs])
    assert finite(derived) == RESULTS[name]


def test_tables_need_no_workdir(tmp_path):
    """The files of runs, and step costs, are enough: those of a fresh clone."""
    out = tmp_path / "results"
    out.mkdir()
    (out / "runs").symlink_to(DOCS / "results" / "runs")
    empty = tmp_path / "work"
    with pytest.raises(UserError, match=r"work/costs.json is not there: run --part costs first"):
        write_results(FULL, FULL_EXTENT, regime.FULL, ("main",), empty, {}, out, None)
    shutil.copy(DOCS / "results" / "costs.json", out)
    write_results(FULL, FULL_EXTENT, regime.FULL, ("main",), empty, {}, out, None)
    assert read_json(out / "main.json") == RESULTS["main"]


def test_step_costs_of_another_definition_make_no_table(tmp_path):
    costs = (DOCS / "results" / "costs.json").read_text()
    (tmp_path / "costs.json").write_text(costs.replace("warm_start.num_steps=600", "warm_start.num_steps=60"))
    with pytest.raises(UserError, match=r"costs.json was measured with another definition"):
        write_results(FULL, FULL_EXTENT, regime.FULL, ("main",), tmp_path, {}, tmp_path, None)


def test_every_answer_is_measured():
    for answer in ANSWERS:
        assert tables.at(RESULTS, answer.place)["value"] > 0
    assert tables.at(RESULTS, ("main", "nothing", "there")) is None


def test_what_the_papers_claim_is_in_their_published_numbers():
    """PODS's in the authors' runs, whose least gains are rounded down; Pilot-Commit's in its table."""
    read = reader(DOCS / "published" / "pods.json")
    found = {n: paper.setting_numbers(read(s.baseline), read(s.pods))["ratio"] for n, s in paper.SETTINGS.items()}
    on_one = min(found[name] for name, s in paper.SETTINGS.items() if s.unit == "h")
    rows = read_json(DOCS / "published" / "pilot_commit.json")["rows"]
    spans = {b: [row[f"over_{b}"] for row in rows if row[f"over_{b}"]] for b in ("grpo", "dapo")}
    claims = {
        ("main", "grpo_ga"): (math.floor(10 * min(found.values())) / 10, math.inf),
        ("main", "grpo"): (on_one, math.inf),
        ("allocation", "mixed-grpo"): (min(spans["grpo"]), max(spans["grpo"])),
        ("allocation", "mixed-dapo"): (min(spans["dapo"]), max(spans["dapo"])),
    }
    for answer in ANSWERS:
        low, high = answer.claimed
        assert answer.paper.startswith(
            f"{low:g}x to {high:.1f}x" if math.isfinite(high) else ("at least 1.7x", "2x and more")
        )
        if (place := (answer.table, answer.place[2])) in claims:
            assert answer.claimed == claims[place]


def test_the_table_of_pilot_commit_agrees_with_itself():
    """Ratios of rounded counts are those of the table, to what rounding leaves open."""
    for row in read_json(DOCS / "published" / "pilot_commit.json")["rows"]:
        for baseline in ("grpo", "dapo"):
            if row[baseline]:
                low, high = ((row[baseline] + d) / (row["pilot_commit"] - d) for d in (-0.05, 0.05))
                assert low - 0.05 <= row[f"over_{baseline}"] <= high + 0.05


def test_a_quick_study_answers_what_it_has_measured(tmp_path):
    results = copy.deepcopy(RESULTS)
    for by_variant in results["small_batch"]["ratios"].values():
        by_variant.pop("small-pilot_commit", None)
    rows = {"full": blocks_of(RESULTS)["answer"], "quick": blocks_of(results)["answer"]}
    assert [rows[study].count("`small_batch`") for study in rows] == [2, 0]
    results["statistics"]["speed_ups"]["pods"] = {}
    assert plots.draw_numbers("statistics", results["statistics"], tmp_path) == []
    assert plots.draw_answers(results, tmp_path).read_bytes() != (DOCS / "results/answers.png").read_bytes()
    del results["larger"]
    assert "answer" not in blocks_of(results)
