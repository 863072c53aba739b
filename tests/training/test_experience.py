"""Requests of unequal counts become groups of those counts, and nothing else is verified."""

import jax
import numpy as np
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.groups import Request, joined
from pods_jax.rewards import RewardPool
from pods_jax.training.experience import orders_of, training_params, verified_groups
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run

KEY = jax.random.key(0)


@pytest.fixture
def run(tiny):
    config, _ = from_mapping(tiny)
    task = load_data(config)
    with RewardPool(num_workers=1) as pool:
        yield make_run(config, task, pool, lambda step, loss: None)


def test_pilots_and_commits_together_are_the_groups_of_one_request(run, monkeypatch):
    verified, verdicts = [], run.rewarder.pool.verdicts

    def recording(texts, *rest, **more):
        verified.extend(texts)
        return verdicts(texts, *rest, **more)

    monkeypatch.setattr(run.rewarder.pool, "verdicts", recording)
    a, b = run.stream.next(2)
    run.engine.update_params(3)

    def generate_groups(requests):
        completions = run.engine.generate(orders_of(requests, KEY), training_params(run.config.rollout))
        return verified_groups(run.rewarder, requests, completions, 3)

    whole = generate_groups([Request(a, 6), Request(b, 6)])
    pilots = generate_groups([Request(a, 2, "pilot"), Request(b, 2, "pilot")])
    verified.clear()
    mixed = generate_groups([Request(b, 4, "commit", 2), Request(a, 1, "commit", 2)])
    assert [len(g.texts) for g in mixed] == [4, 1]
    assert len(verified) == 5
    assert_equal(joined([pilots[1], mixed[0]]), whole[1], 6)
    assert_equal(joined([pilots[0], mixed[1]]), whole[0], 3)


def assert_equal(group, expected, count):
    """The group has the first `count` rollouts of the expected one."""
    assert group.request.count == count == len(group.texts)
    assert group.texts == expected.texts[:count]
    for name in ("tokens", "lengths", "truncated", "rewards", "correct", "policy_versions"):
        np.testing.assert_array_equal(getattr(group, name), getattr(expected, name)[:count], err_msg=name)
    np.testing.assert_allclose(group.logprobs, expected.logprobs[:count], rtol=0, atol=1e-5)
