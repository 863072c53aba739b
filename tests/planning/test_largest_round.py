"""The largest round that each allocator asks for."""

import time

import pytest
from ml_collections import FrozenConfigDict

from pods_jax.allocation import ALLOCATORS
from pods_jax.config.load import load_config
from pods_jax.config.schema import AllocationConfig, Config, RolloutConfig, SelectionConfig
from pods_jax.planning.rounds import largest_round

P, N = 4, 16


def counts(name, **options):
    rollout = RolloutConfig(num_prompts=P, num_generations=N)
    allocation = AllocationConfig(name, FrozenConfigDict(options))
    return largest_round(Config(rollout=rollout, selection=SelectionConfig(num_kept=4), allocation=allocation))


def test_uniform_asks_for_a_group_a_prompt():
    assert counts("uniform") == [N] * P


def test_pilot_commit_asks_for_commits_and_new_pilots_together():
    assert sorted(counts("pilot_commit", candidates=12)) == [4] * 12 + [12] * P


def test_dynamic_sampling_asks_for_all_its_candidates():
    assert counts("dynamic_sampling", candidates=12) == [N] * 12


@pytest.mark.parametrize("name", ALLOCATORS)
def test_every_allocator_has_a_largest_round(name):
    assert sum(counts(name)) > 0


@pytest.mark.parametrize(
    ("method", "rollouts"),  # a round of the papers' runs: 384 x 32 + 128 x 96, 384 x 128, 128 x 128
    [("pilot_commit", 24_576), ("dapo", 49_152), ("grpo", 16_384)],
)
def test_the_published_runs(method, rollouts):
    start = time.perf_counter()
    assert sum(largest_round(load_config(f"configs/pilot_commit/deepmath_1p5b.py:{method}"))) == rollouts
    assert time.perf_counter() - start < 20
