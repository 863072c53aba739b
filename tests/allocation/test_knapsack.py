import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import ScriptedWorld, World, make, make_config, one_step

from pods_jax.allocation.knapsack import KnapsackOptions, budgets, deal, gains, kind_of, needed, share
from pods_jax.config.validate import violations

# ---------------------------------------------------------------- the authors' rule


def authors(rates, n, *, n_min=2, n_max=128, n_negative=2, n_positive=2, fallback=True):
    """Their allocation as plain loops over prompts; None is a rate that is not trusted. What is dealt to mixed prompts
    is not in the budgets: the second result is the largest worth of all deals."""
    budget = [n if r is None else n_negative if r == 0 else n_positive if r == 1 else n_min for r in rates]
    left = n * len(rates) - sum(budget)
    mixed = [i for i, r in enumerate(rates) if r is not None and 0 < r < 1]
    zero = [i for i, r in enumerate(rates) if r is None or r == 0]  # theirs is 0 for what is not trusted, too
    if not mixed:
        if not zero:
            return [n] * len(rates), None
        for k, i in enumerate(zero):
            budget[i] += left // len(zero) + (k < left % len(zero))
        return budget, None
    cost = sum(int(min(n_max, math.log(0.1) / math.log(max(rates[i], 1 - rates[i])))) for i in mixed)
    takers = zero or [i for i in range(len(rates)) if i not in mixed]
    if cost < left and fallback and takers:
        spare = left - cost
        for k, i in enumerate(takers):
            budget[i] += spare // len(takers) + (k < spare % len(takers))
        left = cost

    def worth(extras):
        return sum(
            (1 - rates[i] ** (x + n_min) - (1 - rates[i]) ** (x + n_min)) * rates[i] * (1 - rates[i]) ** 2
            for i, x in zip(mixed, extras, strict=True)
            if x > 0
        )

    deals = itertools.product(range(min(left, n_max - n_min) + 1), repeat=len(mixed))
    return budget, max((worth(d) for d in deals if sum(d) == left), default=None)


RATE = st.sampled_from([None, 0.0, 1.0, 0.125, 0.5, 0.75])


@given(st.lists(RATE, min_size=1, max_size=5), st.booleans(), st.integers(2, 4), st.integers(2, 3))
def test_budgets_are_the_authors(rates, fallback, n_negative, n_min):
    n, n_max = 4, 12
    o = KnapsackOptions(n_min=n_min, n_max=n_max, n_negative=n_negative, allow_fallback=fallback)
    counts = budgets(rates, n, o)
    expected, best = authors(rates, n, n_min=n_min, n_max=n_max, n_negative=n_negative, fallback=fallback)
    assert counts.sum() == n * len(rates)
    mixed = [i for i, r in enumerate(rates) if r is not None and 0 < r < 1]
    assert [c for i, c in enumerate(counts) if i not in mixed] == [c for i, c in enumerate(expected) if i not in mixed]
    if best is not None:
        got = sum(gains(np.array([rates[i]]), n_min, n_max)[0, counts[i] - n_min] for i in mixed)
        assert got == pytest.approx(best, abs=1e-12)


def test_what_mixed_prompts_do_not_need_goes_to_prompts_without_success():
    rates = [0.5] * 4 + [0.0] * 4
    assert budgets(rates, 16, KnapsackOptions()).tolist() == [5, 5, 5, 5, 27, 27, 27, 27]
    assert budgets(rates, 16, KnapsackOptions(allow_fallback=False)).tolist() == [30, 30, 30, 30, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("rates", "counts"),
    [
        ([None] * 3, [8, 8, 8]),
        ([1.0] * 3, [8, 8, 8]),
        ([1.0, 0.0, 0.0], [2, 11, 11]),
        ([1.0, 1.0, 0.0], [2, 2, 20]),
        ([1.0, None, 0.0], [2, 14, 8]),  # 24 - 2 - 8 - 2 = 12 are shared
        ([0.5, 1.0, 1.0], [5, 10, 9]),  # without a prompt without success, the solved ones get the rest
        ([0.5] * 3, [8, 8, 8]),  # all are mixed: nobody else could take what they do not need
    ],
)
def test_budgets_of_special_batches(rates, counts):
    assert budgets(rates, 8, KnapsackOptions()).tolist() == counts


def test_what_n_max_leaves_is_shared_by_the_mixed():
    assert budgets([0.5, 0.5, 1.0], 8, KnapsackOptions(n_max=8, allow_fallback=False)).tolist() == [11, 11, 2]


def test_rollouts_that_are_needed():
    """The least N, rounded down, with 1 - max(p, 1 - p)^N >= 0.9."""
    o = KnapsackOptions(n_max=40)
    for p in (0.05, 0.1, 0.3, 0.5, 0.7, 0.9):
        real = next(N / 1000 for N in range(10**6) if 1 - max(p, 1 - p) ** (N / 1000) >= 0.9)
        assert needed(p, o) == min(40, int(real))
    for rate in (1e-20, 1 - 1e-20):  # which float64 cannot tell from 0 and 1
        assert needed(rate, o) == 40


# ---------------------------------------------------------------- worth and deal


def test_the_worth_of_rollouts():
    """(1 - p^N - (1-p)^N) p (1-p)^2, from the outcomes themselves; nothing without a rollout beyond n_min."""
    for p in (0.1, 0.5, 0.8):
        assert gains(np.array([p]), 2, 6)[0, 0] == 0
        for n in range(3, 7):
            outcomes = itertools.product([0, 1], repeat=n)
            mixed = sum(np.prod([p if o else 1 - p for o in outcome]) for outcome in outcomes if 0 < sum(outcome) < n)
            assert gains(np.array([p]), 2, 6)[0, n - 2] == pytest.approx(mixed * p * (1 - p) ** 2, abs=1e-15)


@given(st.data())
def test_the_deal_is_the_best_of_all(data):
    """Against every combination, also for gains that are not concave."""
    k, most = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    budget = data.draw(st.integers(0, k * most))
    table = np.array(data.draw(st.lists(st.integers(0, 9), min_size=k * (most + 1), max_size=k * (most + 1))))
    table = table.reshape(k, most + 1).astype(float)
    counts = deal(table, budget)
    assert counts.sum() == budget
    assert (counts >= 0).all()
    assert (counts <= most).all()
    deals = (d for d in itertools.product(range(most + 1), repeat=k) if sum(d) == budget)
    assert sum(table[i, c] for i, c in enumerate(counts)) == max(
        sum(table[i, c] for i, c in enumerate(d)) for d in deals
    )


def test_hard_prompts_get_more_than_easy_ones():
    easy, hard = deal(gains(np.array([0.9, 0.1]), 2, 128), budget=60)
    assert easy < hard


def test_shares():
    assert share(7, 3).tolist() == [3, 2, 2]
    assert share(0, 2).tolist() == [0, 0]


def test_kinds():
    assert [kind_of(r) for r in (None, 0.0, 1.0, 0.3)] == ["unseen", "never_right", "never_wrong", "mixed"]


# ---------------------------------------------------------------- success rates


@given(
    groups=st.lists(st.lists(st.booleans(), min_size=1, max_size=24), min_size=1, max_size=6),
    window=st.integers(1, 16), trusted=st.integers(1, 16),
)  # fmt: skip
def test_rates_are_the_authors(groups, window, trusted):
    """A group of `window` or more has its own rate; others have that of the last `window` of all, the latest first."""
    trusted = min(trusted, window)
    allocator = make("knapsack", P=1, n=8, window=window, trusted=trusted)
    world = ScriptedWorld(1, lambda p: 0)
    lists = []
    for correct in groups:
        lists.append([float(c) for c in correct])
        world.correct = lambda request, correct=correct: np.array(correct)
        allocator.learn([world.group(request_of(world, len(correct)))])
        flat = []
        for values in reversed(lists):
            flat.extend(reversed(values))
        rate = np.mean(lists[-1]) if len(lists[-1]) >= window else np.mean(flat[:window])
        if len(flat) >= trusted:
            assert allocator._rate(0) == pytest.approx(rate)
        else:
            assert allocator._rate(0) is None


def request_of(world, count):
    (request,) = make("knapsack", P=1, n=8).requests(world.stream)
    return request.__class__(request.prompt, count)


def test_rates_of_rewards():
    allocator, world = make("knapsack", P=1, n=8, criterion="reward"), ScriptedWorld(1, lambda p: 0)
    group = world.group(request_of(world, 8))
    values = np.array([0.5, 0.25, 2.0, -1.0, np.nan, 0.25, 0.0, 0.5, 0.5][:8], np.float32)
    allocator.learn([group.__class__(**{**vars(group), "rewards": values})])
    assert allocator._rate(0) is None  # 7 of them are finite
    allocator.learn([group.__class__(**{**vars(group), "rewards": values})])
    assert allocator._rate(0) == (0.5 + 0.25 + 1 + 0 + 0.25 + 0 + 0.5) / 7


# ---------------------------------------------------------------- steps


@given(
    kinds=st.lists(st.integers(0, 8), min_size=1, max_size=24),
    n_min=st.integers(2, 8), n_negative=st.integers(2, 8), n_positive=st.integers(2, 8), n_max=st.integers(8, 20),
    fallback=st.booleans(),
)  # fmt: skip
def test_a_step_has_its_budget_exactly(kinds, n_min, n_negative, n_positive, n_max, fallback):
    """Two epochs in one step each: of P prompts with any successes of 8 in the first."""
    P = len(kinds)
    options = {"n_min": n_min, "n_negative": n_negative, "n_positive": n_positive, "n_max": n_max}
    world = ScriptedWorld(P, lambda p: kinds[p.index])
    allocator = make("knapsack", P=P, n=8, allow_fallback=fallback, **options)
    assert [len(g.rewards) for g in one_step(allocator, world)] == [8] * P
    groups = one_step(allocator, world)
    assert sum(len(g.rewards) for g in groups) == 8 * P
    for group in groups:
        right, count = kinds[group.request.prompt.index], len(group.rewards)
        assert count >= (n_negative if right == 0 else n_positive if right == 8 else n_min)


def test_new_prompts_get_n_and_are_counted_by_what_was_known():
    world = ScriptedWorld(6, lambda p: [0, 8, 4][p.index % 3])
    allocator = make("knapsack", P=6, n=8)
    one_step(allocator, world)
    counts = {g.request.prompt.index % 3: len(g.rewards) for g in one_step(allocator, world)}
    assert counts == {0: 17, 1: 2, 2: 5}  # 48 = 2 x (17 + 2 + 5)
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
    assert violations(
        make_config("knapsack", n=8, n_min=1, n_negative=9, n_max=7, trusted=17, confidence=1.0, criterion="both")
    ) == [
        "allocation.options.criterion = 'both' is unknown (known: correctness, reward)",
        "allocation.options.n_min must be at least 2, got 1",
        "allocation.options.n_negative = 9 exceeds rollout.num_generations = 8",
        "allocation.options.n_max = 7 is below rollout.num_generations = 8",
        "allocation.options: 1 <= trusted <= window must hold, got trusted = 17 and window = 16",
        "allocation.options.confidence must lie between 0 and 1, got 1.0",
    ]
