import numpy as np
import pytest
from simulated_world import World, make, make_config, one_round, one_step

from pods_jax.config.validate import violations
from pods_jax.groups import Request

RULES = {
    "balanced": lambda right, wrong, m: right >= m / 2 and wrong >= m / 2,
    "positive_focused": lambda right, wrong, m: right >= 1,
}


@pytest.mark.parametrize("rule", RULES)
def test_decisions_are_those_of_a_reference(rule):
    """Each prompt alone: rounds of 8 until the rule holds, four at most."""
    rates = np.random.default_rng(4).beta(0.3, 0.3, 400)
    world = World(rates)
    allocator = make("reinforce_ada", P=50, n=32, m=8, exit_rule=rule)
    fulfilled = 0
    for step in range(8):
        prompts = World(rates).stream.next((step + 1) * 50)[-50:]
        groups = one_step(allocator, world)
        for prompt, group in zip(prompts, groups, strict=True):
            correct = []
            for start in range(0, 32, 8):
                correct += world.correct(Request(prompt, 8, first=start)).tolist()
                if RULES[rule](sum(correct), len(correct) - sum(correct), 8):
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


def test_what_is_wrong_with_the_options():
    assert violations(make_config("reinforce_ada", n=32, m=8, max_rounds=5, exit_rule="any")) == [
        "allocation.options.exit_rule = 'any' is unknown (known: balanced, positive_focused)",
        "rollout.num_generations = 32 must be a multiple of allocation.options.max_rounds = 5",
    ]
