import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import World, make, make_config, one_step

from pods_jax.allocation.predictors import GaussianProcess, embed
from pods_jax.allocation.vip import VARIANCES, least_sum
from pods_jax.config.validate import violations


@pytest.mark.parametrize(("name", "n_min"), [("rloo", 2), ("dr_grpo", 3)])
@given(rates=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4), data=st.data())
def test_the_counts_have_the_least_variance_of_all(name, n_min, rates, data):
    """Against every combination of counts in n_min .. n_min + 5 with the same sum."""
    a = np.array(rates) * (1 - np.array(rates))
    costs = a[:, None] * VARIANCES[name](np.arange(n_min, n_min + 6))
    budget = data.draw(st.integers(0, 5 * len(rates)))
    counts = least_sum(costs, budget)
    assert counts.sum() == budget
    assert (counts <= 5).all()

    def variance(extras):
        return sum(p * VARIANCES[name](np.array([n_min + c]))[0] for p, c in zip(a, extras, strict=True))

    deals = (d for d in itertools.product(range(6), repeat=len(rates)) if sum(d) == budget)
    assert variance(counts) == pytest.approx(min(map(variance, deals)))


@pytest.mark.parametrize("name", VARIANCES)
def test_the_variance_that_n_rollouts_leave(name):
    """The variance of the gradient (1/n) sum of advantage x score, by simulation: scores have variance 1 and do not
    depend on the rewards, which are +-1 with p = 1/2, so that p (1 - p) is 1/4."""
    rng = np.random.default_rng(0)
    for n in (3, 6):
        rewards = rng.choice([-1.0, 1.0], (200_000, n))
        scores = rng.normal(size=(200_000, n))
        if name == "rloo":
            advantages = (rewards - rewards.mean(1, keepdims=True)) * n / (n - 1)
        else:
            advantages = rewards - rewards.mean(1, keepdims=True)
        variance = (advantages * scores).mean(1).var()
        assert variance == pytest.approx(4 * 0.25 * VARIANCES[name](np.array([n]))[0], rel=0.02)


def test_falls_are_ever_slower():
    """So that the largest falls of all can be taken; for dr_grpo from 3 rollouts on."""
    for name, start in (("rloo", 2), ("dr_grpo", 3)):
        assert (np.diff(VARIANCES[name](np.arange(start, 60)), 2) > 0).all()
    assert np.diff(VARIANCES["dr_grpo"](np.arange(2, 5)), 2)[0] < 0


def test_decisions_are_those_of_a_reference():
    """Logits of observed rates, a Gaussian process over the prompts, and counts that minimise the variance."""
    P, n = 6, 8
    rates = np.random.default_rng(2).beta(0.5, 0.5, 30)
    world, twin = World(rates), World(rates)
    allocator = make("vip", P=P, n=n, n_max=20)
    process = GaussianProcess(-1.0, 0.4, 1e-4)
    sizes = set()
    for _ in range(12):
        prompts = twin.stream.next(P)
        points = embed(prompts, 64)
        p = np.clip(1 / (1 + np.exp(-process.mean(points))), 1e-6, 1 - 1e-6)
        counts = np.full(P, 4)
        for _ in range(P * n - 4 * P):  # one after the other, to whoever gains most
            gain = p * (1 - p) * (1 / (counts - 1) - 1 / counts)
            counts[np.argmax(np.where(counts < 20, gain, -1))] += 1
        one_step(allocator, world)
        requests = world.rounds[-1]
        assert [r.prompt for r in requests] == prompts
        assert sum(r.count for r in requests) == P * n
        variance = sum(q * (1 - q) / (r.count - 1) for q, r in zip(p, requests, strict=True))
        assert variance == pytest.approx(sum(q * (1 - q) / (c - 1) for q, c in zip(p, counts, strict=True)))
        observed = np.clip([world.correct(r).mean() for r in requests], 1e-6, 1 - 1e-6)
        process.observe([q.index for q in prompts], points, np.log(observed / (1 - observed)))
        sizes |= {r.count for r in requests}
    assert len(sizes) > 3


def test_prompts_of_rate_one_half_get_most():
    """Two of three examples are always right or wrong; from the second epoch on they get the least."""
    world = World([0.0, 0.5, 1.0] * 4)
    allocator = make("vip", P=12, n=8)
    assert [len(g.rewards) for g in one_step(allocator, world)] == [8] * 12
    groups = one_step(allocator, world)
    sizes = {k: [len(g.rewards) for g in groups if g.request.prompt.index % 3 == k] for k in range(3)}
    assert max(sizes[0] + sizes[2]) < min(sizes[1])
    assert sum(map(sum, sizes.values())) == 12 * 8


def test_what_is_wrong_with_the_options():
    options = {"n_min": 2, "n_max": 5, "variance": "dr_grpo", "scale": 0.0, "noise": 0.0, "embedding_size": 0}
    assert violations(make_config("vip", n=8, **options)) == [
        "allocation.options.n_min must be at least 3, got 2",
        "rollout.num_generations = 8 must lie between allocation.options.n_min = 2 and n_max = 5",
        "allocation.options.embedding_size must be at least 1, got 0",
        "allocation.options.scale must be positive, got 0.0",
        "allocation.options.noise must be positive, got 0.0",
    ]
    assert violations(make_config("vip", n=8, n_min=1, variance="grpo")) == [
        "allocation.options.variance = 'grpo' is unknown (did you mean 'dr_grpo'?)",
        "allocation.options.n_min must be at least 2, got 1",
    ]
