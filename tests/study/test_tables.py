"""Tables of workdirs with known curves and costs, against arithmetic."""

import json
import math

import pytest
from made_study import SIZES, make_costs, make_run
from study import document, plots, tables
from study.curve_files import write_curve_file
from study.definition import ALLOCATION, LEARNING, TARGETS, THRESHOLDS

from pods_jax.errors import UserError
from pods_jax.io import finite

RATES = {"grpo_ga": 0.05, "grpo": 0.04, "pods": 0.05, "random": 0.03, "max_reward": 0.008, "percentile": 0.05}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    for name, rate in RATES.items():
        for seed in range(3):
            make_run(root / name / f"seed={seed}", rate, seed)
    make_run(root / "pods" / "seed=7", 1.0, 7)  # no other variant has it
    return root


@pytest.fixture(scope="module")
def main(workdir):
    return tables.learning_table(LEARNING["main"], workdir, make_costs(workdir, SIZES))


def test_the_seeds_are_those_that_all_variants_have(main, workdir):
    assert main["seeds"] == [0, 1, 2]
    assert main["hours"] == 18
    for seed in (0, 1):
        make_run(workdir / "n=32" / f"seed={seed}", 0.05, seed)
    found = tables.find(LEARNING["n"], workdir)
    assert found.seeds == [0, 1]
    assert list(found.runs) == ["grpo", "n=32", "pods"]


def test_missing_baselines_are_told(tmp_path):
    make_run(tmp_path / "pods" / "seed=0", 0.1, 0)
    with pytest.raises(UserError, match="grpo_ga, grpo"):
        tables.find(LEARNING["main"], tmp_path)


def test_thresholds_are_reached_where_the_curves_say(main):
    rate = RATES["grpo_ga"] * 1.02  # the middle seed's
    for t in THRESHOLDS:
        exact = -math.log(1 - t) / rate
        found = main["rows"]["grpo_ga"]["steps_to"][str(t)]
        assert exact < found <= exact + 10  # an evaluation every 4 steps; the mean of three lags by one
    assert math.isinf(main["rows"]["max_reward"]["steps_to"]["0.9"])


def test_a_speed_up_is_the_cost_ratio_where_progress_per_step_is_equal(main):
    """PODS and GRPO-GA have the same made-up curves, and steps of 0.138 and 0.33 s."""
    for t in map(str, THRESHOLDS):
        found = main["speed_ups"]["grpo_ga"]["pods"][t]
        assert found["steps"]["value"] == pytest.approx(1.0)
        assert found["paired"]["value"] == pytest.approx(0.33 / 0.138)
        assert found["ratio"] == pytest.approx(0.33 / 0.138)
        assert found["low"] <= found["ratio"] <= found["high"]
    never = main["speed_ups"]["grpo"]["max_reward"]["0.9"]["paired"]
    assert (never["num"], never["censored"]) == (3, 3)
    reached = main["rows"]["grpo"]["steps_by_seed"]["0.9"]
    by_seed = [t * 0.09 / (160 * 0.138) for t in reached]  # over a whole run of max-reward
    assert never["value"] == pytest.approx(math.prod(by_seed) ** (1 / 3))
    assert main["speed_ups"]["grpo"]["max_reward"]["0.9"]["ratio"] == 0


def test_at_equal_time_the_cheaper_step_is_ahead(main):
    for row in main["at_equal_time"]:
        accuracy = row["accuracy"]
        assert accuracy["grpo_ga"]["mean"] == pytest.approx(row["threshold"], abs=0.05)
        assert accuracy["pods"]["mean"] > accuracy["grpo_ga"]["mean"]
    late = main["at_equal_time"][-1]
    assert late["seconds"] > 160 * 0.09  # the seconds of a whole run of GRPO
    assert late["accuracy"]["grpo"] is None


def test_the_cost_model_is_the_one_that_made_the_costs(workdir):
    found = tables.cost_table(make_costs(workdir, SIZES))
    assert found["model"] == pytest.approx({"a": 0.01, "b": 0.001, "c": 0.004, "error": 0}, abs=1e-9)
    assert found["gain"] == pytest.approx(0.33 / 0.138)
    share = found["update_share_for_gain"]["2.0"]  # (a + b n + c n) / (a + b n + c m) = 2 at c = share x b
    assert (0.074 + 0.064 * share) / (0.074 + 0.016 * share) == pytest.approx(2.0)


@pytest.fixture(scope="module")
def allocation(tmp_path_factory):
    """GRPO spends 512 rollouts a step, DAPO 1,536, the others 768; all curves are those of steps."""
    root = tmp_path_factory.mktemp("allocation")
    for name in ALLOCATION["allocation"].variants:
        spent = {"mixed-grpo": 512, "mixed-pods": 512, "mixed-dapo": 1536}.get(name, 768)
        for seed in range(3):
            make_run(root / name / f"seed={seed}", 0.02, seed, spent)
    return root, tables.allocation_table(ALLOCATION["allocation"], root)


def test_rollouts_are_counted_to_each_target(allocation):
    _, table = allocation
    for target in map(str, TARGETS):
        ratios = table["ratios"]["mixed-dapo"]["mixed-pilot_commit"][target]
        assert ratios["paired"]["value"] == pytest.approx(2.0)
        assert ratios["ratio"] == pytest.approx(2.0)
        row = table["rows"]["mixed-grpo"]["rollouts_to"][target]
        assert row["num"] == row["reached"] == 3
        assert row["steps"] == pytest.approx(row["value"] / 512, rel=0.02)
        assert row["value"] == pytest.approx(-math.log(1 - float(target)) / 0.0204 * 512, abs=8 * 512)


def test_figures_and_tables_of_everything(allocation, workdir, main, tmp_path):
    root, table = allocation
    costs = make_costs(workdir, SIZES)
    results = {"main": main, "costs": tables.cost_table(costs), "allocation": table}
    drawn = plots.draw_learning_curves("main", workdir, costs, tmp_path)
    drawn.append(plots.draw_allocation_curves("allocation", root, tmp_path))
    for name, numbers in results.items():
        drawn += plots.draw_numbers(name, numbers, tmp_path)
    assert [p.stem for p in drawn] == ["main_curves", "main_steps", "allocation_curves", "main", "costs", "allocation"]
    assert all(p.stat().st_size > 10_000 for p in drawn)
    blocks = document.blocks_of(results)
    assert "| PODS | 64 -> 16 | 138 |" in blocks["main"]
    assert "2.39x [2.39, 2.39]" in blocks["main"]
    assert "not reached" in blocks["main"]
    assert "2.00x [2.00, 2.00]" in blocks["allocation"]
    assert document.blocks_of(json.loads(json.dumps(finite(results)))) == blocks


def test_blocks_are_written_only_into_their_places(tmp_path):
    file = tmp_path / "doc.md"
    file.write_text("a\n<!-- study:main -->\nold\n<!-- end -->\nb\n<!-- study:costs -->\nkept\n<!-- end -->\n")
    document.fill(file, {"main": "new"})
    assert file.read_text() == (
        "a\n<!-- study:main -->\nnew\n<!-- end -->\nb\n<!-- study:costs -->\nkept\n<!-- end -->\n"
    )
    with pytest.raises(UserError, match="study:n"):
        document.fill(file, {"n": "x"})


def test_means_are_over_the_seeds_with_which_every_variant_gets_there(tmp_path):
    for name in ALLOCATION["small_batch"].variants:
        for seed in range(3):
            stays_low = name == "small-grpo" and seed == 2
            make_run(tmp_path / name / f"seed={seed}", 1e-4 if stays_low else 0.02, seed, 512)
    table = tables.allocation_table(ALLOCATION["small_batch"], tmp_path)
    target = str(TARGETS[0])
    dapo = table["rows"]["small-dapo"]["rollouts_to"][target]
    assert (dapo["num"], dapo["reached"]) == (2, 3)
    assert dapo["value"] == pytest.approx(math.sqrt(dapo["by_seed"][0] * dapo["by_seed"][1]))
    paired = table["ratios"]["small-grpo"]["small-dapo"][target]["paired"]
    assert (paired["num"], paired["censored"]) == (3, 1)
    assert paired["value"] == pytest.approx((160 * 512 / dapo["by_seed"][2]) ** (1 / 3))  # equal budgets here
    assert "1 at the budget" in document.allocation_block(table)


def test_a_run_that_ends_before_others_has_its_own_last_accuracy(tmp_path):
    for name in ALLOCATION["small_batch"].variants:
        for seed, num_steps in enumerate((160, 40)):
            make_run(tmp_path / name / f"seed={seed}", 0.02, seed, 512, num_steps)
    last = tables.allocation_table(ALLOCATION["small_batch"], tmp_path)["rows"]["small-grpo"]["last"]
    of_each = [sum(1 - math.exp(-r * s) for s in (end - 8, end - 4, end)) / 3 for r, end in ((0.02, 160), (0.0204, 40))]
    assert last["value"] == pytest.approx(sum(of_each) / 2, abs=1e-4)


def test_one_seed_has_no_intervals_and_its_table_is_the_same_from_a_file(tmp_path):
    for name in ALLOCATION["small_batch"].variants:
        make_run(tmp_path / name / "seed=0", 0.02, 0, 512)
    table = tables.allocation_table(ALLOCATION["small_batch"], tmp_path)
    block = document.allocation_block(table)
    assert " % [-, -]" in block
    assert document.allocation_block(json.loads(json.dumps(finite(table)))) == block
    for name in LEARNING["m"].variants:
        make_run(tmp_path / name / "seed=0", 0.02, 0)
    learnt = tables.learning_table(LEARNING["m"], tmp_path, make_costs(tmp_path, SIZES))
    block = document.learning_block(learnt)
    assert " % [-, -]" in block
    assert document.learning_block(json.loads(json.dumps(finite(learnt)))) == block


def test_tables_are_the_same_from_the_small_files_of_runs(tmp_path, workdir):
    costs = make_costs(tmp_path, SIZES)
    table = LEARNING["main"]
    for name in table.variants:
        for seed in range(3):
            file = tmp_path / "runs" / name / f"seed={seed}.json"
            write_curve_file(file, {"variant": name, "seed": seed}, (), workdir / name / f"seed={seed}", "accuracy")
    assert finite(tables.learning_table(table, tmp_path / "runs", costs)) == finite(
        tables.learning_table(table, workdir, costs)
    )
