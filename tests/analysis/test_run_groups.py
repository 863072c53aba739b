"""Runs to groups: how far their curves go, what their labels say, and that no two groups of a figure look the same."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run

from pods_jax.analysis.run_groups import (
    MAX_KEYS,
    RunGroup,
    comparable,
    differences,
    last_step,
    looks_of,
    method_of,
    read_groups,
    remarks,
    sized_looks,
)
from pods_jax.analysis.runs import RunRecord
from pods_jax.analysis.style import LOOKS
from pods_jax.config.methods import METHODS
from pods_jax.config.schema import default_config, flat


def runs_to(*steps, finished=()):
    """One run for each last step, named by its place; finished: the places of those that are."""
    return [RunRecord({}, [], [{"step": 0}, {"step": s}], Path(str(i)), i in finished) for i, s in enumerate(steps)]


@pytest.mark.parametrize(
    ("steps", "finished", "end", "kept"),
    [
        ((40, 40), {0, 1}, 40, [0, 1]),
        ((0, 40), {1}, 40, [1]),  # the other has just begun
        ((36, 40), {1}, 40, [1]),
        ((40, 40), {1}, 40, [0, 1]),  # all but its summary is there
        ((36, 40, 40), set(), 36, [0, 1, 2]),
        ((0, 40, 40), set(), 40, [1, 2]),
        ((0, 40), {0, 1}, 40, [1]),  # the log of a finished run lacks lines
        ((0, 0), set(), 0, [0, 1]),
    ],
)
def test_how_far_curves_go_and_with_which_runs(steps, finished, end, kept):
    runs = runs_to(*steps, finished=finished)
    assert last_step(runs) == end
    assert comparable(runs) == [runs[i] for i in kept]


def test_what_is_said_of_them():
    assert remarks("PODS", runs_to(40, 40, finished={0, 1})) == []
    assert remarks("PODS", runs_to(4, 40, finished={1})) == [
        "0 is left out: unfinished, evaluated up to step 4, and PODS up to 40"
    ]
    assert remarks("PODS", runs_to(4, 40, finished={0, 1})) == [
        "0 is left out: evaluated up to step 4, and PODS up to 40"
    ]
    assert remarks("PODS", runs_to(36, 40)) == [
        "0 is unfinished, evaluated up to step 36: the curves of PODS end at 36",
        "1 is unfinished, evaluated up to step 40: the curves of PODS end at 36",
    ]
    assert remarks("PODS", runs_to(36, 40, finished={0, 1})) == [
        "0 is evaluated up to step 36: the curves of PODS end at 36"
    ]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_some_run_is_drawn_and_every_other_is_named(steps, finished):
    runs = runs_to(*steps, finished=finished)
    kept, said = comparable(runs), "\n".join(remarks("PODS", runs)).splitlines()
    assert kept
    named = {line.split()[0] for line in said}
    assert {str(r.workdir) for r in runs if r not in kept or not r.finished} <= named


def test_a_key_bears_its_section_where_others_have_one_of_that_name():
    config = {"rollout.num_prompts": 16, "evaluation.num_prompts": 256, "optimizer.learning_rate": 1e-3, "seed": 0}
    other = config | {"evaluation.num_prompts": 64, "optimizer.learning_rate": 3e-4}
    assert differences([config, other]) == [
        ["evaluation.num_prompts = 256", "lr = 0.001"],
        ["evaluation.num_prompts = 64", "lr = 0.0003"],
    ]


def test_equal_configs_do_not_differ_and_a_key_may_be_absent():
    assert differences([{"a.b": 1}]) == [[]]
    assert differences([{"a.b": 1}, {"a.b": 1, "a.c": 2}]) == [["c = None"], ["c = 2"]]


def group(method, n, **config):
    return RunGroup(method, "", n, 16, {"rollout.num_generations": n} | config, ())


def cues(look):
    return look.color, look.marker, look.line


def test_variants_of_a_size_are_told_apart():
    groups = [group("grpo", 16, steps=9), group("grpo", 16, steps=8)]
    groups += [group("pods", n, steps=steps) for n, steps in itertools.product((32, 64, 128), (8, 9))]
    looks = sized_looks(groups, "n", (64, 16))
    assert [look.label for look in looks] == [
        "n = 16 (GRPO), steps = 9",
        "n = 16 (GRPO), steps = 8",
        "n = 32, steps = 8",
        "n = 32, steps = 9",
        "n = 64 (PODS), steps = 8",
        "n = 64 (PODS), steps = 9",
        "n = 128, steps = 8",
        "n = 128, steps = 9",
    ]
    assert len(set(map(cues, looks))) == len(groups)
    assert looks[4].color == LOOKS["pods"].color


def test_sizes_without_variants_say_only_their_size():
    labels = [
        look.label for look in sized_looks([group("grpo", 16), group("pods", 64), group("pods", 32)], "n", (64, 16))
    ]
    assert labels == ["n = 16 (GRPO)", "n = 64 (PODS)", "n = 32"]


def test_variants_of_a_method_share_its_colour_and_differ_in_lines():
    looks = looks_of([group("pods", 64, lr=1), group("random", 64), group("pods", 64, lr=2)])
    assert [look.label for look in looks] == ["PODS, lr = 1", "random", "PODS, lr = 2"]
    assert looks[0].color == looks[2].color
    assert looks[0].line != looks[2].line


def test_where_many_keys_differ_a_label_has_the_fewest_that_tell_the_configs_apart():
    """60 keys of two tasks' configs, of which the learning rate tells two of three apart, and one more the third."""
    many = {f"section.key{i}": 0 for i in range(60)}
    other = {f"section.key{i}": 1 for i in range(60)}
    configs = [
        many | {"optimizer.learning_rate": 1e-3},
        other | {"optimizer.learning_rate": 1e-3},
        other | {"optimizer.learning_rate": 1e-4},
    ]
    found = differences(configs)
    assert all(len(parts) == 2 for parts in found)
    assert [parts[-1] for parts in found] != [found[0][-1]] * 3
    assert len({tuple(parts) for parts in found}) == 3
    assert [[p for p in parts if p.startswith("lr")] for parts in found] == [["lr = 0.001"]] * 2 + [["lr = 0.0001"]]


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 2)), min_size=1, max_size=6))
def test_labels_tell_all_configs_apart_that_differ(configs):
    labels = [tuple(parts) for parts in differences(configs)]
    full = [tuple(config.get(key) for key in "abcdefgh") for config in configs]
    assert [[a == b for b in labels] for a in labels] == [[a == b for b in full] for a in full]


def test_few_differences_are_all_shown_and_long_values_cut():
    configs = [{f"s.k{i}": value for i in range(MAX_KEYS)} for value in (0, 1)]
    assert differences(configs)[1] == [f"k{i} = 1" for i in range(MAX_KEYS)]
    [[part], _] = differences([{"data.system_prompt": "think " * 50}, {"data.system_prompt": None}])
    assert len(part) < 60


def test_rules_of_one_method_are_told_apart(tmp_path):
    for rule in ("max_variance", "max_variance_authors"):
        make_run(tmp_path / rule, n=8, m=4, rule=rule, seed=0, rate=1.0)
    assert [g.label for g in read_groups(tmp_path)] == [
        "PODS, rule = max_variance",
        "PODS, rule = max_variance_authors",
    ]


def test_grpo_that_generates_as_much_a_prompt_in_smaller_groups_is_grpo_ga():
    def config(n, rule, groups):
        return flat(default_config().to_dict()) | {
            "rollout.num_generations": n,
            "selection.rule": rule,
            "allocation.options.groups_per_prompt": groups,
        }

    pods, ga, grpo = config(128, "max_variance", 4), config(32, "all", 16), config(32, "all", 1)
    assert [method_of(c, [pods, ga, grpo]) for c in (pods, ga, grpo)] == ["pods", "grpo_ga", "grpo"]


@pytest.mark.parametrize("name", METHODS)
def test_a_config_of_a_method_bears_its_name(name):
    def keys(name):
        config = default_config()
        config.update_from_flattened_dict(METHODS[name])
        return flat(config.to_dict())

    shown = {"pods_authors": "pods"}.get(name, name)
    assert method_of(keys(name), [keys("pods"), keys(name)]) == shown


def test_methods_that_share_an_objective_and_those_without_a_name():
    def named(rule, allocator, **objective):
        config = flat(default_config().to_dict()) | {"selection.rule": rule, "allocation.name": allocator}
        return method_of(config | {f"objective.{k}": v for k, v in objective.items()}, [])

    assert named("all", "dynamic_sampling", loss_type="grpo") == "dapo"
    assert named("max_variance", "uniform", loss_type="dapo") == "pods"
    assert named("all", "greso") == "greso"
    assert named("max_variance", "greso") == "greso_pods"
    assert named("random", "greso") == "greso_random"
    assert named("shifted", "uniform") == "shifted"
