import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import World, make, make_config, one_step

from pods_jax.allocation.base import generator
from pods_jax.allocation.cures import in_proportion
from pods_jax.config.validate import violations


@pytest.mark.parametrize("temperature", [None, 0.05])
def test_decisions_are_those_of_a_reference(temperature):
    """Counts of right and wrong rollouts; p is the mean of Beta(right + 1, wrong + 1); prompts are drawn by
    exp(sqrt(p (1 - p)) / t), with the authors' t = (right + 1) / 0.01 by default."""
    P, n, seed = 5, 8, 3
    rates = np.random.default_rng(1).beta(0.4, 0.4, 60)
    world, twin = World(rates), World(rates)
    allocator = make("cures", seed=seed, P=P, n=n, candidates=15, temperature=temperature)
    right, wrong = np.zeros(60), np.zeros(60)
    for _ in range(25):
        drawn = twin.stream.next(15)
        index = [p.index for p in drawn]
        p = (right[index] + 1) / (right[index] + wrong[index] + 2)
        t = (right[index] + 1) / 0.01 if temperature is None else temperature
        scores = np.exp(np.sqrt(p * (1 - p)) / t)
        rng = generator(seed, "cures", drawn[0].uid)
        places = rng.choice(15, size=P, replace=False, p=scores / scores.sum())
        one_step(allocator, world)
        requests = world.rounds[-1]
        assert [r.prompt for r in requests] == [drawn[i] for i in places]
        deviation = np.sqrt(p * (1 - p))[places]
        ideal = P * n * deviation / deviation.sum()
        counts = np.array([r.count for r in requests])
        assert counts.sum() == P * n
        assert (counts >= 2).all()
        if (ideal > 3).all():
            assert (np.abs(counts - ideal) < 1.5).all()
        for r in requests:
            right[r.prompt.index] += world.correct(r).sum()
            wrong[r.prompt.index] += r.count - world.correct(r).sum()
    metrics = allocator.metrics()
    assert [metrics[f"allocation/{name}"] for name in ("candidates", "passed_over")] == [25 * 15, 25 * 10]


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.5]), min_size=1, max_size=4), st.integers(2, 5), st.integers(2, 3))
def test_counts_are_the_best_whole_numbers(deviations, n, n_min):
    """They make sum d^2 / count least, whose minimum over real numbers is in proportion to d."""
    n = max(n, n_min)
    d, total = np.array(deviations), len(deviations) * n
    counts = in_proportion(d, n, n_min)
    assert counts.sum() == total
    assert (counts >= n_min).all()
    deals = (c for c in itertools.product(range(n_min, total + 1), repeat=len(d)) if sum(c) == total)
    assert (d**2 / counts).sum() == pytest.approx(min((d**2 / np.array(c)).sum() for c in deals))


def test_a_low_temperature_takes_the_uncertain_ones():
    world = World([0.0] * 30 + [0.5] * 30 + [1.0] * 30)
    allocator = make("cures", P=10, n=8, candidates=90, temperature=0.01)
    for _ in range(30):
        one_step(allocator, world)
    late = [r.prompt.index // 30 for requests in world.rounds[15:] for r in requests]
    assert late.count(1) / len(late) > 0.9


def test_four_steps_worth_are_candidates():
    world = World([0.5] * 500)
    make("cures", P=3, n=4).requests(world.stream)
    assert world.stream.position == 12


def test_what_is_wrong_with_the_options():
    assert violations(make_config("cures", P=4, n=8, candidates=1, temperature=0.0, n_min=9)) == [
        "allocation.options.candidates must be at least 4, got 1",
        "allocation.options.temperature must be positive or None, got 0.0",
        "allocation.options.n_min = 9 exceeds rollout.num_generations = 8",
    ]
    assert violations(make_config("cures", n_min=1)) == ["allocation.options.n_min must be at least 2, got 1"]
