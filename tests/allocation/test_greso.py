import dataclasses
import math

import numpy as np
import pytest
from simulated_world import ScriptedWorld, World, make, make_config, one_round, one_step

from pods_jax.allocation import Exhausted
from pods_jax.allocation.base import generator
from pods_jax.config.validate import violations


def p_easy_and_hard(allocator):
    return [allocator.metrics()[f"allocation/p_{kind}"] for kind in ("easy", "hard")]


def test_decisions_are_those_of_a_reference():
    """Rows of zero-variance epochs, p and the adaptive size of rounds, recomputed from the outcomes."""
    P, n, seed = 16, 4, 11
    rates = np.random.default_rng(2).beta(0.2, 0.2, 200)
    world, twin = World(rates), World(rates)
    allocator = make("greso", seed=seed, P=P, n=n)
    p, history = {"easy": 0.5, "hard": 0.5}, {i: [] for i in range(200)}  # history: "easy", "hard" or "mixed"
    kinds, got = [], 0
    for _ in range(120):
        wanted = 24
        if kinds:
            expected = (P - got) / max(kinds.count("mixed"), 1) * len(kinds) * 1.25
            wanted = min(max(math.ceil(expected), 4), 24)
        candidates, looked_at = [], 0
        while len(candidates) < wanted and looked_at < 200:
            (prompt,), looked_at = twin.stream.next(1), looked_at + 1
            past, z = history[prompt.index], 0
            while z < len(past) and past[-1 - z] == past[-1] != "mixed":
                z += 1
            chance = max(p[past[-1]] ** z, 0.01) if z else 1.0
            if generator(seed, "greso", prompt.uid).random() < chance:
                candidates.append(prompt)
        ready = one_round(allocator, world)
        assert [r.prompt.uid for r in world.rounds[-1]] == [c.uid for c in candidates]
        for request in world.rounds[-1]:
            right = world.correct(request).sum()
            kinds.append("hard" if right == 0 else "easy" if right == n else "mixed")
            history[request.prompt.index].append(kinds[-1])
            got += kinds[-1] == "mixed"
        assert len(ready) == (P if got >= P else 0)
        if ready:
            for kind, target in (("easy", 0.25 / 3), ("hard", 0.25 * 2 / 3)):
                if prompt.epoch > 0:
                    p[kind] += -0.01 if kinds.count(kind) / len(kinds) >= target else 0.01
                    p[kind] = min(max(p[kind], 0.05), 0.95)
            kinds, got = [], 0
        assert p_easy_and_hard(allocator) == pytest.approx([p["easy"], p["hard"]])
    assert prompt.epoch > 5
    assert allocator.metrics()["allocation/skipped"] > 100


@pytest.mark.parametrize(
    ("P", "varied", "second"),
    [
        (10, 8, 5),  # 2 more are needed, 8 of 15 varied: 2 x 15 / 8 x 1.25 = 4.7
        (10, 4, 15),  # 6 x 15 / 4 x 1.25 = 28.1, but no more than the first round
        (13, 11, 5),  # 2 x 20 / 11 x 1.25 = 4.5
    ],
)
def test_the_size_of_a_later_round(P, varied, second):
    """The first has ceil(1.5 P) prompts, of which so many vary."""
    world = ScriptedWorld(100, lambda p: 4 if p.uid < varied else 8 * (p.uid % 2))
    allocator = make("greso", P=P, n=8)
    assert one_round(allocator, world) == []
    one_round(allocator, world)
    assert [len(requests) for requests in world.rounds] == [math.ceil(1.5 * P), second]


def test_a_later_round_has_a_quarter_of_p_at_least():
    """8 of 9 vary in a round of 14 candidates: 1 x 14 / 8 x 1.25 = 2.2, but ceil(9 / 4) = 3."""
    world = ScriptedWorld(100, lambda p: 4 if p.uid < 8 else 0)
    allocator = make("greso", P=9, n=8)
    for _ in range(2):
        one_round(allocator, world)
    assert [len(requests) for requests in world.rounds] == [14, 3]


def test_prompts_without_variance_are_skipped_more_and_more():
    """One example in two is always solved: it is looked at in epoch 1 by half, in epoch 2 by a quarter of those ..."""
    world = ScriptedWorld(2000, lambda p: [4, 8][p.index % 2])
    allocator = make("greso", P=100, n=8, candidates=200, p_step=0.0)
    while world.stream.position < 3 * 2000:
        one_step(allocator, world)
    seen = [sum(r.prompt.index % 2 for rs in world.rounds for r in rs if r.prompt.epoch == e) for e in range(3)]
    assert seen[0] == 1000
    assert abs(seen[1] - 500) < 4 * np.sqrt(250)
    assert abs(seen[2] - 375) < 4 * np.sqrt(250)  # the skipped half keeps z = 1: 500 / 2 + 500 / 4


def test_groups_without_a_finite_reward_leave_the_history_as_it_is():
    """One example in two is always solved; in epoch 1 its rewards are not finite. So half of all are looked at in epoch
    1, and half again in epoch 2, since all are still of one easy epoch."""
    world = ScriptedWorld(2000, lambda p: [4, 8][p.index % 2])
    whole = world.group

    def group(request):
        bad = request.prompt.epoch == 1 and request.prompt.index % 2
        return dataclasses.replace(whole(request), rewards=np.full(request.count, np.nan if bad else 1.0))

    world.group = group
    allocator = make("greso", P=100, n=8, candidates=200, p_step=0.0)
    while world.stream.position < 3 * 2000:
        one_step(allocator, world)
    seen = [sum(r.prompt.index % 2 for rs in world.rounds for r in rs if r.prompt.epoch == e) for e in range(3)]
    assert seen[0] == 1000
    assert abs(seen[1] - 500) < 4 * np.sqrt(250)
    assert abs(seen[2] - 500) < 4 * np.sqrt(250)  # 750 if they ended the row, 375 if they lengthened it
    assert allocator.metrics()["allocation/invalid"] == seen[1]


def test_groups_without_a_finite_reward_count_among_the_candidates():
    """Of 10 candidates 1 is easy and 5 are without a finite reward: 1/10 is below the wanted 1/8, 1/5 would not be."""
    kinds = {0: 8, 1: 4, 2: 4, 3: 4, 4: 4}  # the others are invalid
    world = ScriptedWorld(10, lambda p: kinds.get(p.index, 4))
    whole = world.group

    def group(request):
        bad = request.prompt.index not in kinds
        return dataclasses.replace(whole(request), rewards=np.full(request.count, np.nan if bad else 1.0))

    world.group = group
    world.stream.position = 10  # the second epoch, from which on p changes
    allocator = make("greso", P=4, n=8, candidates=10, easy_share=0.5)
    one_step(allocator, world)
    assert p_easy_and_hard(allocator) == pytest.approx([0.51, 0.51])


def test_a_data_set_without_variance_ends_in_good_order():
    for rate in (0.0, 1.0):
        allocator = make("greso", P=4, n=8, on_exhausted="stop")
        with pytest.raises(Exhausted, match="allocation greso: step 1 has 0 of 4 groups"):
            one_step(allocator, World(np.full(5, rate)))


def test_what_varied_is_trained_on_where_all_others_are_skipped():
    """One example varies in epoch 0 and is easy from then on, as the others are: in epoch 2 there is no candidate."""
    world = ScriptedWorld(5, lambda p: 4 if p.index == 0 and p.epoch == 0 else 8)
    options = {"p_initial": 0.0, "p_least": 0.0, "p_step": 0.0, "p_explore": 0.0, "on_exhausted": "train_partial"}
    allocator = make("greso", P=2, n=8, candidates=5, **options)
    (group,) = one_step(allocator, world)
    assert group.request.prompt.index == 0
    assert [len(requests) for requests in world.rounds] == [5, 1, 0]
    with pytest.raises(Exhausted, match="allocation greso: step 2 has 0 of 2 groups after 1 rounds"):
        one_step(allocator, world)


def test_what_is_wrong_with_the_options():
    problems = violations(make_config("greso", p_initial=0.99, p_explore=2.0, target=-0.5, margin=0.5, max_rounds=0))
    assert problems == [
        "allocation.options: 0 <= p_least <= p_initial <= p_most <= 1 must hold",
        "allocation.options.p_explore must lie in [0, 1], got 2.0",
        "allocation.options.target must lie in [0, 1], got -0.5",
        "allocation.options.margin must be at least 1, got 0.5",
        "allocation.options.max_rounds must be at least 1, got 0",
    ]
