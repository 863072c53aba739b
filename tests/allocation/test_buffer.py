import numpy as np
import pytest
from simulated_world import World, through_a_file

from pods_jax.allocation.base import generator
from pods_jax.allocation.buffer import ORDERS, ReplayBuffer
from pods_jax.groups import Prompt, Request


def pilot(uid, successes, n=8):
    world = World([0.0] * 100)
    world.correct = lambda request: np.arange(n) < successes
    return world.group(Request(Prompt(uid, uid, "", "", "", (1,)), n, "pilot"))


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
        ("max_variance", [2, 4, 5, 1, 3, 0]),
        ("most_recent", [5, 4, 3, 2, 1, 0]),
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
    groups = filled("random").groups
    first = [ORDERS["random"](groups, generator(seed, "buffer", 1, 1))[0] for seed in range(600)]
    assert ((np.bincount(first, minlength=6) - 100) ** 2 / 100).sum() < 20.5  # chi-squared, 5 degrees, p = 0.001
    assert set(ORDERS) == {"random", "max_variance", "most_recent", "least_recent"}


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
    other.load_state_dict(through_a_file(buffer.state_dict()))
    for mine, its in zip(buffer.groups, other.groups, strict=True):
        assert mine.request == its.request
        assert mine.texts == its.texts
        for name in ("tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions"):
            assert getattr(mine, name).dtype == getattr(its, name).dtype
            np.testing.assert_array_equal(getattr(mine, name), getattr(its, name))
    assert uids(other.expire(oldest=3)) == [0, 1, 2, 3]


def test_generators_are_named():
    names = [(seed, use, *at) for seed in (0, 1) for use in ("a", "b") for at in ((1, 2), (2, 1))]
    assert len({generator(*name).random() for name in names}) == len(names)
    assert generator(0, "a", 1, 2).random() == generator(0, "a", 1, 2).random()
