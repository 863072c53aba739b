"""A step's random keys and its books, and the part of them that a checkpoint holds."""

import json

import jax
import numpy as np
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.learner.batch import Kept
from pods_jax.rewards import RewardPool
from pods_jax.training import step as step_module
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run, total_updates


@pytest.fixture
def run(tiny):
    config, _ = from_mapping(tiny)
    with RewardPool(1) as pool:
        yield make_run(config, load_data(config), pool, lambda *_: None)


def test_selection_and_sampling_draw_apart_and_anew_in_each_step(run, monkeypatch):
    keys = []

    def noted(name, place):
        real = getattr(step_module, name)

        def noting(*arguments):
            keys.append(tuple(jax.random.key_data(arguments[place]).tolist()))
            return real(*arguments)

        monkeypatch.setattr(step_module, name, noting)

    noted("orders_of", 1)
    noted("select_groups", 2)
    for step in (1, 2):
        step_module.train_step(run, step)
    assert len(keys) == len(set(keys)) == 4


def test_a_rollout_that_is_kept_twice_is_trained_once(run, monkeypatch):
    real = step_module.select_groups

    def twice(config, groups, key):
        _, metrics = real(config, groups, key)
        return [Kept(g, np.array([0, 0, 3, 3]), np.float32([1, 1, -1, -1])) for g in groups], metrics

    monkeypatch.setattr(step_module, "select_groups", twice)
    _, kept = step_module.train_step(run, 1)
    assert run.totals["rollouts/trained"] == 2 * len(kept)
    assert run.totals["tokens/trained"] == sum(int(k.group.lengths[[0, 3]].sum()) for k in kept)


@pytest.mark.parametrize(("iterations", "shares"), [(1, 1), (3, 1), (1, 4), (3, 4)])
def test_the_schedule_counts_every_update(tiny, iterations, shares):
    tiny.objective.num_iterations, tiny.objective.steps_per_generation = iterations, shares
    assert total_updates(from_mapping(tiny)[0]) == tiny.training.num_steps * iterations * shares


def test_a_checkpoint_holds_every_count(run, tiny):
    step_module.train_step(run, 1)
    run.skipped_in_a_row, run.ended = 3, "the reason"
    host = json.loads(json.dumps(run.host_state()))
    config, _ = from_mapping(tiny)
    with RewardPool(1) as pool:
        later = make_run(config, load_data(config), pool, lambda *_: None)
        later.load(1, run.state, host)
    for name in ("version", "totals", "skipped_in_a_row", "ended", "inputs"):
        assert getattr(later, name) == getattr(run, name), name
    assert later.stream.state_dict() == run.stream.state_dict() != {"position": 0}
    assert later.allocator.state_dict() == run.allocator.state_dict()
