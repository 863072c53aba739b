import numpy as np
import pytest
from simulated_world import ScriptedWorld, World, make, make_config, one_round, one_step

from pods_jax.allocation import Exhausted
from pods_jax.config.validate import violations


def uids(things):
    return [getattr(t, "request", t).prompt.uid for t in things]


def test_decisions_are_those_of_the_authors_code():
    """Rounds while fewer than P are finished: all that qualified are continued, and new prompts screened; a step takes
    the finished in the order in which they qualified, and leaves the rest in the queue."""
    P, candidates, n_init = 16, 24, 4
    rates = np.random.default_rng(3).beta(0.2, 0.2, 3000)
    world, allocator = World(rates), make("speed", P=P, n=12, n_init=n_init, candidates=candidates)
    second_phase, queue, without_generation = [], [], 0
    for _ in range(150):
        ready = one_round(allocator, world)
        requests = world.rounds[-1]
        if len(queue) < P:
            commits = [r for r in requests if r.stage == "commit"]
            pilots = [r for r in requests if r.stage == "pilot"]
            assert requests == commits + pilots
            assert uids(commits) == second_phase
            assert [(r.count, r.first) for r in commits] == [(8, 4)] * len(second_phase)
            assert [(r.count, r.first) for r in pilots] == [(n_init, 0)] * candidates
            queue += second_phase
            second_phase = [r.prompt.uid for r in pilots if 0 < world.correct(r).sum() < n_init]
        else:
            assert requests == []
            without_generation += 1
        assert uids(ready) == (queue[:P] if len(queue) >= P else [])
        queue = queue[P:] if len(queue) >= P else queue
        assert uids(allocator.held()) == queue + second_phase
        assert all(len(g.rewards) == 12 for g in ready)
    assert without_generation == 0  # 24 candidates are too few to fill the queue twice
    assert allocator.metrics()["allocation/rollouts_discarded"] > 0


def test_a_step_that_finds_enough_in_the_queue_generates_nothing():
    """All 64 prompts of a round qualify, and finish in the next one: four steps of 16."""
    world, allocator = ScriptedWorld(1000, lambda p: 2), make("speed", P=16, n=24)
    for _ in range(6):
        assert len(one_step(allocator, world)) == 16
    sizes = [(sum(r.stage == "commit" for r in rs), sum(r.stage == "pilot" for r in rs)) for rs in world.rounds]
    assert sizes == [(0, 64), (64, 64), (0, 0), (0, 0), (0, 0), (64, 64), (0, 0)]
    assert allocator.metrics()["allocation/rounds"] == 3


def test_the_age_of_what_queued_is_that_of_its_screening():
    world, allocator = ScriptedWorld(1000, lambda p: 2), make("speed", P=16, n=24)
    ages = []
    for _ in range(6):
        one_step(allocator, world)
        ages.append(allocator.metrics()["allocation/age_max"])
    assert ages == [0, 0, 0, 0, 4, 4]  # screened in step 1, continued in step 5


def test_it_ends_after_max_rounds():
    allocator, world = make("speed", P=4, n=8, max_rounds=3, on_exhausted="stop"), World(np.zeros(50))
    with pytest.raises(
        Exhausted, match=r"step 1 has 0 of 4 groups after 3 rounds.*48, of which 0 qual.*0 were.*48 all"
    ):
        one_step(allocator, world)
    world = ScriptedWorld(50, lambda p: 2 if p.uid < 3 else 0)
    allocator = make("speed", P=4, n=8, max_rounds=3, on_exhausted="train_partial")
    assert uids(one_step(allocator, world)) == [0, 1, 2]
    assert allocator.held() == []


def test_every_step_has_max_rounds():
    """Every second round of 4 qualifies: each step takes a round of screening and one of continuation, none more."""
    world = ScriptedWorld(1000, lambda p: 2 if p.uid // 4 % 2 == 0 and p.uid < 40 else 0)
    allocator = make("speed", P=4, n=8, candidates=4, max_rounds=2, on_exhausted="stop")
    for step in range(5):
        assert uids(one_step(allocator, world)) == [8 * step + i for i in range(4)]
    with pytest.raises(Exhausted, match="step 6 has 0 of 4 groups after 2 rounds"):
        one_step(allocator, world)


def test_what_is_wrong_with_the_options():
    assert violations(make_config("speed", n=8, n_init=1, n_continue=5, candidates=0, max_rounds=1)) == [
        "allocation.options: 1 n_init + 5 n_continue rollouts must be rollout.num_generations = 8, with at least one "
        "to continue",
        "allocation.options.n_init must be at least 2, got 1",
        "allocation.options.candidates must be at least 1, got 0",
        "allocation.options.max_rounds must be at least 2, got 1",
    ]
