import numpy as np
from simulated_world import GradedWorld, World, make, make_config, one_step

from pods_jax.allocation.predictors import ValueModel, embed
from pods_jax.config.validate import violations


def test_decisions_are_those_of_a_reference():
    """Candidates in the stream's order; those whose predicted value is nearest to 1/2; the model learns their rates."""
    P, n = 6, 4
    rates = np.random.default_rng(3).beta(0.5, 0.5, 60)
    world, twin = World(rates), World(rates)
    allocator = make("prompt_curriculum", P=P, n=n, candidates=20, learning_rate=1.0, num_updates=3)
    model = ValueModel(64, 1.0, 3)
    moved = 0
    for _ in range(20):
        drawn = twin.stream.next(20)
        values = model.predict(embed(drawn, 64))
        expected = sorted(range(20), key=lambda i: abs(values[i] - 0.5))[:P]
        one_step(allocator, world)
        requests = world.rounds[-1]
        assert [r.prompt for r in requests] == [drawn[i] for i in expected]
        assert [r.count for r in requests] == [n] * P
        model.observe(embed([r.prompt for r in requests], 64), np.array([world.correct(r).mean() for r in requests]))
        moved += expected != list(range(P))
    assert moved > 10
    metrics = allocator.metrics()
    assert [metrics[f"allocation/{name}"] for name in ("candidates", "passed_over")] == [400, 280]


def test_another_target_is_looked_for():
    """Two kinds of prompts by their tokens' parity; with target 1, those that are always right."""
    world = World([0.0, 1.0] * 40)
    allocator = make("prompt_curriculum", P=8, n=4, candidates=40, target=1.0, embedding_size=512)
    for _ in range(30):
        one_step(allocator, world)
    late = [r.prompt.index % 2 for requests in world.rounds[20:] for r in requests]
    assert np.mean(late) > 0.9


def test_it_learns_from_rewards():
    allocator, world = make("prompt_curriculum", P=4, n=4, criterion="reward"), GradedWorld(4, lambda p: [0.9, 0.8])
    for _ in range(50):
        one_step(allocator, world)
    predicted = allocator._model.predict(embed(world.stream.next(4), 64))
    assert (np.abs(predicted - 0.85) < 0.05).all()


def test_four_steps_worth_are_candidates():
    world = World([0.5] * 500)
    make("prompt_curriculum", P=3, n=4).requests(world.stream)
    assert world.stream.position == 12


def test_what_is_wrong_with_the_options():
    options = {"candidates": 3, "target": 1.5, "learning_rate": 0.0, "num_updates": 0, "embedding_size": 0}
    assert violations(make_config("prompt_curriculum", P=4, **options)) == [
        "allocation.options.candidates must be at least 4, got 3",
        "allocation.options.target must lie in [0, 1], got 1.5",
        "allocation.options.num_updates must be at least 1, got 0",
        "allocation.options.embedding_size must be at least 1, got 0",
        "allocation.options.learning_rate must be positive, got 0.0",
    ]
