import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulated_world import GradedWorld, World, make, make_config, one_round, one_step

from pods_jax.allocation import ALLOCATORS
from pods_jax.config.schema import ObjectiveConfig, SelectionConfig
from pods_jax.config.validate import violations
from pods_jax.groups import Request
from pods_jax.selection import select

RULES = {
    "balanced": lambda right, wrong, m: right >= m // 2 and wrong >= m - m // 2,
    "positive_focused": lambda right, wrong, m: right >= 1,
}


@pytest.mark.parametrize("m", [4, 5, 8])
@pytest.mark.parametrize("rule", RULES)
def test_decisions_are_those_of_the_authors_code(rule, m):
    """Each prompt by itself: rounds of 8 until the rule holds, four at most."""
    rates = np.random.default_rng(4).beta(0.3, 0.3, 400)
    world = World(rates)
    allocator = make("reinforce_ada", P=50, n=32, m=m, exit_rule=rule)
    fulfilled = 0
    for step in range(8):
        prompts = World(rates).stream.next((step + 1) * 50)[-50:]
        groups = one_step(allocator, world)
        for prompt, group in zip(prompts, groups, strict=True):
            correct = []
            for start in range(0, 32, 8):
                correct += world.correct(Request(prompt, 8, first=start)).tolist()
                if RULES[rule](sum(correct), len(correct) - sum(correct), m):
                    fulfilled += 1
                    break
            assert group.request.prompt == prompt
            assert group.correct.tolist() == correct
            assert group.texts == tuple(f"{prompt.uid}/{i}" for i in range(len(correct)))
    metrics = allocator.metrics()
    assert metrics["allocation/passed"] == fulfilled
    assert metrics["allocation/unfulfilled"] == 400 - fulfilled


def test_a_step_is_over_when_all_have_left():
    world, allocator = World(np.full(100, 0.5)), make("reinforce_ada", P=4, n=32, m=2)
    assert len(one_round(allocator, world)) == 4
    world, allocator = World(np.zeros(100)), make("reinforce_ada", P=4, n=32, m=2)
    assert [len(one_round(allocator, world)) for _ in range(4)] == [0, 0, 0, 4]
    assert [(len(requests), requests[0].count, requests[0].first) for requests in world.rounds] == [
        (4, 8, 0), (4, 8, 8), (4, 8, 16), (4, 8, 24)
    ]  # fmt: skip


def test_the_authors_setting_is_a_valid_config():
    """Rounds of 8, 4 at most, 4 kept; the mean over all of a prompt's rollouts, and no division by the deviation."""
    config = dataclasses.replace(
        make_config("reinforce_ada", n=32, m=4),
        selection=SelectionConfig("balanced", 4),
        objective=ObjectiveConfig(statistics="group", scale_rewards="none"),
    )
    assert violations(config) == []
    requests = ALLOCATORS["reinforce_ada"](config).requests(World([0.5] * 9).stream)
    assert [r.count for r in requests] == [8] * 4
    chosen = select("balanced", jnp.array([[1.0, 1, 1, 1, 0, 1, 1, 0]]), 4, jax.random.key(0))
    assert sorted(np.array([1, 1, 1, 1, 0, 1, 1, 0])[chosen[0]].tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize(("criterion", "rounds"), [("correctness", 4), ("reward", 1)])
def test_a_rollout_is_positive_above_0_7(criterion, rounds):
    """All are wrong; of rewards 0.69, 0.71, 0.69, 0.71, .. half are positive."""
    world = GradedWorld(20, lambda p: [0.69, 0.71])
    one_step(make("reinforce_ada", P=2, n=32, m=8, criterion=criterion), world)
    assert len(world.rounds) == rounds


def test_what_is_wrong_with_the_options():
    assert violations(make_config("reinforce_ada", n=32, m=8, max_rounds=5, exit_rule="any")) == [
        "allocation.options.exit_rule = 'any' is unknown (known: balanced, positive_focused)",
        "rollout.num_generations = 32 must be a multiple of allocation.options.max_rounds = 5",
    ]
