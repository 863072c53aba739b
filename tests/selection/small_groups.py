"""Selections of small groups, compiled once for a rule and a shape."""

import functools

import jax
import numpy as np
from hypothesis import strategies as st

from pods_jax.selection import select

KEY = jax.random.key(0)


@functools.partial(jax.jit, static_argnames=("rule", "num_kept"))
def _select(rule, rewards, num_kept, key, valid, aux):
    return select(rule, rewards, num_kept, key, valid=valid, **aux)


def kept(rule, rewards, num_kept, valid=None, key=KEY, **aux):
    """Indices [P, m]."""
    rewards = np.asarray(rewards, np.float32)
    valid = np.ones(rewards.shape, bool) if valid is None else valid
    return np.asarray(_select(rule, rewards, num_kept, key, valid, aux))


def kept_rewards(rule, rewards, num_kept, **aux):
    return np.take_along_axis(np.asarray(rewards), kept(rule, rewards, num_kept, **aux), axis=1)


def binary_groups(counts, n):
    """Groups with the given numbers of correct rollouts, each in an order of its own."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(np.arange(n) < c) for c in counts]).astype(np.float32)


def families(n):
    """Groups [16, n]: continuous, tied, binary and constant; with large offsets and extreme scales."""
    rng = np.random.default_rng(n)
    graded, binary = rng.choice([0, 0.25, 0.5, 1, 1.25, 2, 3], n), rng.integers(0, 2, n)
    maps = [(1, 0), (1, 1e6), (1e-6, 0), (1e6, -3)]  # scale, offset
    return np.float32([x * a + b for x in (rng.normal(size=n), graded, binary, np.full(n, 0.35)) for a, b in maps])


REWARD = st.one_of(
    st.sampled_from([0.0, 0.25, 0.35, 1.0, 1.1, 3.0]), st.integers(-3000, 3000).map(lambda i: np.float32(i / 1000))
)
