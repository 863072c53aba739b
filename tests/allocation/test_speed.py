import numpy as np
from simulated_world import ScriptedWorld, World, make, make_config, one_round, one_step

from pods_jax.config.validate import violations


def uids(things):
    return [getattr(t, "request", t).prompt.uid for t in things]


def test_decisions_are_those_of_a_reference():
    """Screens in the stream's order; the mixed ones wait in line, and the first P of the line are continued."""
    P, candidates, n_init = 16, 24, 4
    rates = np.random.default_rng(3).beta(0.2, 0.2, 3000)
    world, allocator = World(rates), make("speed", P=P, n=12, n_init=n_init, candidates=candidates)
    line, batch, screened_none = [], [], 0
    for _ in range(150):
        take = min(P - len(batch), len(line))
        screens = len(line) - (P - len(batch)) < P
        ready = one_round(allocator, world)
        commits = [r for r in world.rounds[-1] if r.stage == "commit"]
        pilots = [r for r in world.rounds[-1] if r.stage == "pilot"]
        assert uids(commits) == line[:take]
        assert [(r.count, r.first) for r in commits] == [(8, 4)] * take
        assert [(r.count, r.first) for r in pilots] == [(n_init, 0)] * (candidates if screens else 0)
        batch, line = batch + line[:take], line[take:]
        line += [r.prompt.uid for r in pilots if 0 < world.correct(r).sum() < n_init]
        screened_none += not screens
        assert uids(ready) == (batch if len(batch) == P else [])
        batch = [] if ready else batch
        assert len(line) < P + candidates
    assert allocator.metrics()["allocation/rollouts_discarded"] > 0


def test_a_long_line_is_not_made_longer():
    """All prompts qualify: 64 of them wait after the first round, so that three rounds screen no more."""
    world, allocator = ScriptedWorld(1000, lambda p: 2), make("speed", P=16, n=24)
    one_round(allocator, world)
    for _ in range(8):
        assert len(one_step(allocator, world)) == 16
    assert [sum(r.stage == "pilot" for r in requests) for requests in world.rounds] == [64, 0, 0, 0, 64, 0, 0, 0, 64]


def test_what_is_wrong_with_the_options():
    assert violations(make_config("speed", n=8, n_init=1, n_continue=5, candidates=0, max_rounds=1)) == [
        "allocation.options: 1 n_init + 5 n_continue rollouts must be rollout.num_generations = 8, with at least one "
        "to continue",
        "allocation.options.n_init must be at least 2, got 1",
        "allocation.options.candidates must be at least 1, got 0",
        "allocation.options.max_rounds must be at least 2, got 1",
    ]
