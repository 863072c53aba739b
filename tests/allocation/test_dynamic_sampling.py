import dataclasses

import numpy as np
import pytest
from simulated_world import ScriptedWorld, World, make, make_config, one_round, one_step

from pods_jax.allocation import Exhausted
from pods_jax.config.validate import violations
from pods_jax.errors import UserError


def uids(groups):
    return [g.request.prompt.uid for g in groups]


def counters(allocator, *names):
    metrics = allocator.metrics()
    return [int(metrics[f"allocation/{name}"]) for name in names]


@pytest.mark.parametrize("surplus", ["discard", "keep"])
def test_decisions_are_those_of_a_reference(surplus):
    """10,000 prompts: candidates in the stream's order; those with both right and wrong rollouts, P a step."""
    P, candidates, n = 32, 96, 4
    rates = np.random.default_rng(0).beta(0.3, 0.3, 10_000)
    world = World(rates)
    allocator = make("dynamic_sampling", P=P, n=n, candidates=candidates, surplus=surplus)
    batch, classes, beyond = [], {"passed": 0, "too_easy": 0, "too_hard": 0}, 0
    for _ in range(105):
        ready = one_round(allocator, world)
        requests = world.rounds[-1]
        assert [(r.count, r.stage) for r in requests] == [(n, "plain")] * candidates
        for request in requests:
            right = world.correct(request).sum()
            kind = "too_hard" if right == 0 else "too_easy" if right == n else "passed"
            classes[kind] += 1
            batch += [request.prompt.uid] if kind == "passed" else []
        if len(batch) < P:
            assert ready == []
            continue
        assert uids(ready) == batch[:P]
        beyond += len(batch) - P
        batch = batch[P : 2 * P - 1] if surplus == "keep" else []
        assert uids(allocator.held()) == batch
    assert counters(allocator, *classes, "surplus") == [*classes.values(), beyond]
    assert counters(allocator, "candidates") == [world.stream.position] == [105 * candidates]


def test_kept_surplus_is_one_step_old_at_most():
    world, allocator = World(np.full(500, 0.5)), make("dynamic_sampling", P=4, n=8, candidates=12, surplus="keep")
    for step in range(10):
        assert {int(step - g.policy_versions[0]) for g in one_step(allocator, world)} == ({0} if step == 0 else {0, 1})
    assert counters(allocator, "rollouts_held") == [3 * 8]


def test_it_filters_on_raw_correctness():
    """The world's shaped rewards vary in every group."""
    world, allocator = ScriptedWorld(100, lambda p: [0, 4, 8][p.index % 3]), make("dynamic_sampling", P=4, n=8)
    groups = one_step(allocator, world)
    assert all(g.request.prompt.index % 3 == 1 for g in groups)
    assert all(np.ptp(g.rewards) > 0 for g in map(world.group, world.rounds[0]))


def test_not_a_number_does_not_make_a_group_vary():
    """Right and wrong rollouts, but the reward of the only right one is not a number."""
    world, allocator = ScriptedWorld(10, lambda p: 1), make("dynamic_sampling", P=2, n=4, on_exhausted="stop")
    whole = world.group

    def group(request):
        return dataclasses.replace(whole(request), rewards=np.array([np.nan, 0, 0, 0.0], np.float32))

    world.group = group
    with pytest.raises(Exhausted, match="0 had varying correctness, 0 were all right, 60 all wrong"):
        one_step(allocator, world)


@pytest.mark.parametrize(("rate", "text"), [(0.0, "0 were all right, 36 all wrong"), (1.0, "36 were all right, 0 all")])
def test_nothing_varies(rate, text):
    for policy, error in (("error", UserError), ("stop", Exhausted), ("train_partial", Exhausted)):
        allocator = make("dynamic_sampling", P=4, max_rounds=3, on_exhausted=policy)
        with pytest.raises(error, match=f"step 1 has 0 of 4 groups after 3 rounds.*{text}.*max_rounds"):
            one_step(allocator, World(np.full(5, rate)))
        assert counters(allocator, "rounds") == [3]


def test_every_step_has_max_rounds():
    """Every second round of 4 varies, so each step takes two."""
    world = ScriptedWorld(1000, lambda p: 4 * (p.uid // 4 % 2))
    allocator = make("dynamic_sampling", P=4, n=8, candidates=4, max_rounds=2)
    for step in range(5):
        assert uids(one_step(allocator, world)) == [8 * step + 4 + i for i in range(4)]


def test_a_partial_batch():
    """One prompt in 20 varies: 3 candidates x 4 rounds of 20 examples see one or none."""
    world = ScriptedWorld(20, lambda p: 4 if p.uid == 5 else 0)
    allocator = make("dynamic_sampling", P=2, candidates=3, max_rounds=4, on_exhausted="train_partial")
    assert uids(one_step(allocator, world)) == [5]
    with pytest.raises(Exhausted, match="step 2 has 0 of 2 groups after 4 rounds"):
        one_step(allocator, world)


def test_what_is_wrong_with_the_options():
    assert violations(make_config("dynamic_sampling", candidates=0, max_rounds=0, on_exhausted="", surplus="x")) == [
        "allocation.options.candidates must be at least 1, got 0",
        "allocation.options.on_exhausted = '' is unknown (known: error, stop, train_partial)",
        "allocation.options.max_rounds must be at least 1, got 0",
        "allocation.options.surplus = 'x' is unknown (known: discard, keep)",
    ]
    assert "rollout.num_generations must be at least 2: the correctness of one rollout can not vary" in violations(
        make_config("dynamic_sampling", n=1, m=1)
    )
