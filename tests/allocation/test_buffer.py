import dataclasses
import tracemalloc

import numpy as np
import pytest
from simulated_world import World, through_a_file

from pods_jax.allocation.base import generator
from pods_jax.allocation.buffer import ORDERS, ReplayBuffer, Waiting, detached
from pods_jax.groups import Prompt, Request


def pilot(uid, successes, n=8):
    world = World([0.0] * 100)
    world.correct = lambda request: np.arange(n) < successes
    return world.group(Request(Prompt(uid, uid, "", "", "", (1,)), n, "pilot"))


GRADED = [[0.5, 0.6, 0.5, 0.6], [0.0, 1.0, 0.2, 0.9], [0.1, 0.2, 0.5, 0.4]]


def uids(groups):
    return [g.request.prompt.uid for g in groups]


def filled(order, size=100):
    buffer = ReplayBuffer(size, order)
    for uid, successes in enumerate((1, 6, 4, 2, 5, 3)):  # variance: 7, 12, 16, 12, 15, 15 / 64
        assert buffer.add(pilot(uid, successes), step=1 + uid // 2) == []
    return buffer


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("max_variance", [2, 4, 5, 3, 1, 0]),  # 4 and 5 are of one step, 3 is of a later one than 1
        ("max_variance_oldest", [2, 4, 5, 1, 3, 0]),
        ("most_recent", [4, 5, 2, 3, 0, 1]),
        ("least_recent", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_orders(order, expected):
    buffer = filled(order)
    assert uids(buffer.pop(2, np.random.default_rng(0))) == expected[:2]
    assert uids(buffer.groups) == sorted(expected[2:])
    assert uids(buffer.pop(9, np.random.default_rng(0))) == expected[2:]
    assert len(buffer) == 0


def test_random_is_seeded_and_uniform():
    def order(seed):
        return uids(filled("random").pop(6, generator(seed, "buffer", 1, 1)))

    assert order(3) == order(3) != order(4)
    waiting = [Waiting(pilot(uid, 4), 1, 0.25) for uid in range(6)]
    first = [ORDERS["random"](waiting, generator(seed, "buffer", 1, 1))[0] for seed in range(600)]
    assert ((np.bincount(first, minlength=6) - 100) ** 2 / 100).sum() < 20.5  # chi-squared, 5 degrees, p = 0.001


@pytest.mark.parametrize("order", ["max_variance", "most_recent"])
def test_orders_are_those_of_the_authors_code(order):
    """Sorted by (deviation, step), or by step only, in descending order; Python keeps the order of equal ones."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        steps = np.sort(rng.integers(1, 4, 12))
        successes = rng.integers(1, 8, 12)
        buffer = ReplayBuffer(100, order)
        for uid, (step, count) in enumerate(zip(steps, successes, strict=True)):
            buffer.add(pilot(uid, int(count)), int(step))
        deviations = [np.sqrt(c / 8 * (1 - c / 8)).round(12) for c in successes]
        keys = list(zip(deviations, steps, strict=True)) if order == "max_variance" else list(steps)
        expected = sorted(range(12), key=lambda uid: keys[uid], reverse=True)
        assert uids(buffer.pop(12, rng)) == expected


def test_the_variance_is_of_the_criterion():
    """All are wrong, so that only their rewards differ."""
    graded = [dataclasses.replace(pilot(uid, 0, n=4), rewards=np.array(r)) for uid, r in enumerate(GRADED)]
    buffer = ReplayBuffer(9, "max_variance", "reward")
    for group in graded:
        buffer.add(group, 1)
    expected = sorted(range(3), key=lambda i: -np.var(GRADED[i]))
    assert expected != [0, 1, 2]
    assert uids(buffer.pop(3, np.random.default_rng(0))) == expected


def test_the_size_is_enforced_the_first_added_leaves():
    buffer = filled("random", size=6)
    assert uids(buffer.add(pilot(6, 4), step=4)) == [0]
    assert uids(buffer.groups) == [1, 2, 3, 4, 5, 6]


def test_expiry_is_exact():
    buffer = filled("random")  # two each in steps 1, 2, 3
    assert uids(buffer.expire(oldest=1)) == []
    assert uids(buffer.expire(oldest=2)) == [0, 1]
    assert uids(buffer.clear()) == [2, 3, 4, 5]


def test_restored_through_a_file():
    buffer, other = filled("max_variance"), ReplayBuffer(6, "max_variance")
    other.add(pilot(99, 4), step=1)  # what it held before is gone
    other.load_state_dict(through_a_file(buffer.state_dict()))
    for mine, its in zip(buffer.groups, other.groups, strict=True):
        assert mine.request == its.request
        assert mine.texts == its.texts
        for name in ("tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions"):
            assert getattr(mine, name).dtype == getattr(its, name).dtype
            np.testing.assert_array_equal(getattr(mine, name), getattr(its, name))
    assert uids(other.expire(oldest=3)) == [0, 1, 2, 3]


def test_a_group_that_waits_does_not_keep_its_round_alive():
    """Rounds of 64 x 8 x 1,000 tokens, of each of which one group of 8 waits: 32 kB an array rather than 2 MB."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        buffer = ReplayBuffer(100, "random")
        for step in range(3):
            tokens = np.zeros((64, 8, 1000), np.int32)
            logprobs = np.zeros((64, 8, 1000), np.float32)
            scores = np.zeros((64, 8))
            views = {"tokens": tokens[5], "logprobs": logprobs[5], "rewards": scores[5], "parts": {"a": scores[5]}}
            buffer.add(dataclasses.replace(pilot(step, 4), **views), step)
            del tokens, logprobs, scores, views
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(buffer) == 3
    kept = 3 * 2 * 8 * 1000 * 4
    assert kept < held < 1.5 * kept


def test_a_detached_group_shares_nothing_and_is_the_same():
    group = pilot(0, 3)
    group = dataclasses.replace(group, drawn_logprobs=group.logprobs.copy())
    copy = detached(group)
    assert len(group.arrays()) == 8
    for name in group.arrays():
        assert not np.shares_memory(getattr(copy, name), getattr(group, name))
        np.testing.assert_array_equal(getattr(copy, name), getattr(group, name))
    assert not np.shares_memory(copy.parts["correctness"], group.parts["correctness"])
    assert copy.request == group.request
