import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import ScriptedWorld, World, make, make_config, one_step

from pods_jax.allocation.knapsack import deal, share, values
from pods_jax.config.validate import violations


@given(st.data())
def test_the_deal_is_the_best_of_all(data):
    """Against every combination, also for values that are not concave."""
    k, n_max = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 6))
    n_min = data.draw(st.integers(0, n_max))
    budget = data.draw(st.integers(k * n_min, k * n_max))
    table = np.array(data.draw(st.lists(st.integers(0, 9), min_size=k * (n_max + 1), max_size=k * (n_max + 1))))
    table = table.reshape(k, n_max + 1).astype(float)
    counts = deal(table, budget, n_min)
    assert counts.sum() == budget
    assert (n_min <= counts).all()
    assert (counts <= n_max).all()
    all_deals = itertools.product(range(n_min, n_max + 1), repeat=k)
    best = max(sum(table[i, c] for i, c in enumerate(d)) for d in all_deals if sum(d) == budget)
    assert sum(table[i, c] for i, c in enumerate(counts)) == best


def test_the_value_of_rollouts():
    """(1 - p^N - (1-p)^N) p (1-p)^2, from the outcomes themselves."""
    for p in (0.1, 0.5, 0.8):
        for n in range(5):
            outcomes = itertools.product([0, 1], repeat=n)
            mixed = sum(
                np.prod([p if o else 1 - p for o in outcome]) for outcome in outcomes if 0 < sum(outcome) < len(outcome)
            )
            assert values(np.array([p]), 4)[0, n] == pytest.approx(mixed * p * (1 - p) ** 2, abs=1e-15)


def test_hard_prompts_get_more_than_easy_ones():
    easy, hard = deal(values(np.array([0.9, 0.1]), 128), budget=64, n_min=2)
    assert easy < hard


def test_shares():
    assert share(7, 3).tolist() == [3, 2, 2]
    assert share(0, 2).tolist() == [0, 0]


@given(
    kinds=st.lists(st.integers(0, 8), min_size=1, max_size=24),
    n_min=st.integers(2, 8), n_negative=st.integers(2, 8), n_positive=st.integers(2, 8), n_max=st.integers(8, 20),
)  # fmt: skip
def test_a_step_has_its_budget_exactly(kinds, n_min, n_negative, n_positive, n_max):
    """Two epochs in one step each: of P prompts with any successes of 8 in the first."""
    P = len(kinds)
    options = {"n_min": n_min, "n_negative": n_negative, "n_positive": n_positive, "n_max": n_max}
    world, allocator = ScriptedWorld(P, lambda p: kinds[p.index]), make("knapsack", P=P, n=8, **options)
    assert [len(g.rewards) for g in one_step(allocator, world)] == [8] * P
    groups = one_step(allocator, world)
    assert sum(len(g.rewards) for g in groups) == 8 * P
    for group in groups:
        right, count = kinds[group.request.prompt.index], len(group.rewards)
        assert count >= (n_negative if right == 0 else n_positive if right == 8 else n_min)
        if 0 in kinds and right:
            assert count <= (n_positive if right == 8 else n_max)


def test_new_prompts_get_n_and_leftovers_go_to_the_never_right():
    world = ScriptedWorld(6, lambda p: [0, 8, 4][p.index % 3])
    allocator = make("knapsack", P=6, n=8, n_max=10)
    one_step(allocator, world)
    counts = {g.request.prompt.index % 3: len(g.rewards) for g in one_step(allocator, world)}
    assert counts == {0: 12, 1: 2, 2: 10}  # 48 = 2 x (10 + 2 + 12)
    assert allocator.metrics() == {
        "allocation/rollouts_generated": 96.0, "allocation/rollouts_handed_over": 96.0,
        "allocation/rollouts_discarded": 0.0, "allocation/rollouts_held": 0.0, "allocation/unseen": 6.0,
        "allocation/never_right": 2.0, "allocation/never_wrong": 2.0, "allocation/mixed": 2.0,
    }  # fmt: skip


def test_one_prompt_of_every_world_gets_the_whole_budget():
    for rate in (0.0, 0.5, 1.0):
        world, allocator = World([rate]), make("knapsack", P=1, n=8, n_max=8)
        for _ in range(4):
            assert [len(g.rewards) for g in one_step(allocator, world)] == [8]


def test_what_is_wrong_with_the_options():
    assert violations(make_config("knapsack", n=8, n_min=1, n_negative=9, n_max=7)) == [
        "allocation.options.n_min must be at least 2, got 1",
        "allocation.options.n_negative = 9 exceeds rollout.num_generations = 8",
        "allocation.options.n_max = 7 is below rollout.num_generations = 8",
    ]
