"""No two groups of a figure look the same."""

import itertools

from pods_jax.analysis.compare import Group, looks_of, sized_looks
from pods_jax.analysis.style import METHODS


def group(method, n, **config):
    return Group(method, "", n, 16, {"rollout.num_generations": n} | config, ())


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
    assert looks[4].color == METHODS["pods"].color


def test_sizes_without_variants_say_their_size_alone():
    labels = [
        look.label for look in sized_looks([group("grpo", 16), group("pods", 64), group("pods", 32)], "n", (64, 16))
    ]
    assert labels == ["n = 16 (GRPO)", "n = 64 (PODS)", "n = 32"]


def test_variants_of_a_method_share_its_colour_and_differ_in_lines():
    looks = looks_of([group("pods", 64, lr=1), group("random", 64), group("pods", 64, lr=2)])
    assert [look.label for look in looks] == ["PODS, lr = 1", "random", "PODS, lr = 2"]
    assert looks[0].color == looks[2].color
    assert looks[0].line != looks[2].line
