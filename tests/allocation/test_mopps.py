import numpy as np
import pytest
from simulated_world import GradedWorld, World, make, make_config, one_step

from pods_jax.allocation.base import generator
from pods_jax.config.validate import violations


def uids(requests):
    return [r.prompt.uid for r in requests]


@pytest.mark.parametrize("choice", ["nearest", "threshold"])
def test_decisions_are_those_of_the_authors_code(choice):
    """A table of (alpha, beta), a draw for each candidate, and the P nearest to 0.5, or at random within 0.3..0.7."""
    P, n, seed, decay = 12, 4, 5, 0.5
    rates = np.random.default_rng(1).beta(0.4, 0.4, 200)
    world, twin = World(rates), World(rates)
    allocator = make("mopps", seed=seed, P=P, n=n, candidates=40, choice=choice, decay=decay)
    alpha, beta = np.ones(200), np.ones(200)
    within = 0
    for _ in range(30):
        drawn = twin.stream.next(40)
        r = np.array([generator(seed, "mopps", p.uid).beta(alpha[p.index], beta[p.index]) for p in drawn])
        one_step(allocator, world)
        chosen = uids(world.rounds[-1])
        if choice == "nearest":
            assert chosen == [drawn[i].uid for i in np.argsort((r - 0.5) ** 2, kind="stable")[:P]]
        else:
            inside = [p.uid for p, x in zip(drawn, r, strict=True) if 0.3 <= x <= 0.7]
            within += len(inside) >= P
            order = sorted(range(40), key=lambda i: max(0.3 - r[i], r[i] - 0.7, 0))
            nearest = [drawn[i].uid for i in order if drawn[i].uid not in inside]
            assert set(chosen[: len(inside)]) <= set(inside)
            assert chosen[len(inside) :] == nearest[: max(P - len(inside), 0)]
        for request in world.rounds[-1]:
            i, right = request.prompt.index, int(world.correct(request).sum())
            alpha[i] = alpha[i] * decay + (1 - decay) + right
            beta[i] = beta[i] * decay + (1 - decay) + n - right
    assert choice == "nearest" or 0 < within < 30  # both branches were taken
    metrics = allocator.metrics()
    assert [metrics[f"allocation/{name}"] for name in ("candidates", "passed_over")] == [30 * 40, 30 * 28]


def test_within_the_thresholds_the_choice_is_uniform():
    """All candidates are within 0..1, so each of 12 is among the 3 chosen a quarter of the time (chi-squared)."""
    counts = np.zeros(12)
    for seed in range(400):
        world = World([0.5] * 12)
        allocator = make("mopps", seed=seed, P=3, n=4, candidates=12, choice="threshold", lower=0.0, upper=1.0)
        counts[[r.prompt.index for r in allocator.requests(world.stream)]] += 1
    assert counts.sum() == 1200
    assert ((counts - 100) ** 2 / 75).sum() * 11 / 12 < 31.3  # 11 degrees, p = 0.001; without replacement


def test_what_is_always_right_or_wrong_is_soon_passed_over():
    world = World([0.0] * 40 + [0.5] * 40 + [1.0] * 40)
    allocator = make("mopps", P=10, n=8, candidates=60, decay=1.0)
    for _ in range(40):
        one_step(allocator, world)
    late = [r.prompt.index // 40 for requests in world.rounds[20:] for r in requests]
    assert late.count(1) / len(late) > 0.9


def test_rewards_are_fractions_of_a_success():
    world = GradedWorld(4, lambda p: [0.5, 0.25])
    allocator = make("mopps", P=4, n=4, criterion="reward", decay=1.0)
    one_step(allocator, world)
    assert [allocator._posteriors.of(i) for i in range(4)] == [(1 + 1.5, 1 + 2.5)] * 4


def test_an_epoch_is_the_most_that_is_drawn_and_a_step_the_least():
    world = World([0.5] * 5)
    assert len(make("mopps", P=2, n=4).requests(world.stream)) == 2
    assert world.stream.position == 5
    assert len(make("mopps", P=8, n=4).requests(world.stream)) == 8
    assert world.stream.position == 13
    wide = World([0.5] * 500)
    make("mopps", P=2, n=4).requests(wide.stream)
    assert wide.stream.position == 32


def test_what_is_wrong_with_the_options():
    options = {"candidates": 3, "decay": 1.5, "target": -1.0, "choice": "best", "lower": 0.8}
    assert violations(make_config("mopps", P=4, **options)) == [
        "allocation.options.candidates must be at least 4, got 3",
        "allocation.options.decay must lie in [0, 1], got 1.5",
        "allocation.options.target must lie in [0, 1], got -1.0",
        "allocation.options.choice = 'best' is unknown (known: nearest, threshold)",
        "allocation.options: 0 <= lower <= upper <= 1 must hold",
    ]
