"""Training compiles a program for a shape once: prompts and completions of many lengths share few shapes."""

import collections
import dataclasses
import logging

import jax
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.rewards import RewardPool
from pods_jax.training.prompts import load_data
from pods_jax.training.run import group_gradients_of, make_run
from pods_jax.training.step import train_step

STEPS = 20


class Compilations(logging.Handler):
    """What JAX compiles: "Compiling NAME with global shapes and types [...]"."""

    def __init__(self):
        super().__init__()
        self.programs = collections.Counter()

    def emit(self, record):
        message = record.getMessage()
        if message.startswith("Compiling "):
            self.programs[message.partition("Argument mapping")[0]] += 1

    def of(self, name):
        return {program: count for program, count in self.programs.items() if name in program.split()[1]}


@pytest.fixture
def compilations():
    handler, logger = Compilations(), logging.getLogger("jax")
    logger.addHandler(handler)
    jax.clear_caches()
    with jax.log_compiles():
        yield handler
    logger.removeHandler(handler)


def shortened(task):
    """The task's prompts cut to 3 or 5 tokens, which are the buckets 3 and 6."""
    tokens = tuple(t[: 3 + 2 * (i % 2)] for i, t in enumerate(task.train.tokens))
    return dataclasses.replace(task, train=dataclasses.replace(task.train, tokens=tokens))


def test_twenty_steps_compile_each_function_once_a_bucket(tiny, compilations):
    tiny.rollout.num_prompts = 1
    tiny.training.num_steps = STEPS
    tiny.objective.beta = 0.01  # groups of equal rewards are part of the update, too
    config, _ = from_mapping(tiny)
    with RewardPool(1) as pool:
        run = make_run(config, shortened(load_data(config)), pool, lambda step, loss: None)
        for step in range(1, STEPS + 1):
            train_step(run, step)
    samplers, updates, choices = (compilations.of(name) for name in ("begin", "update", "choose"))
    assert {*samplers.values(), *updates.values(), *choices.values()} == {1}
    assert len(samplers) == 2  # by prompts
    assert 2 <= len(updates) <= 2 * 4  # by prompts and completions
    assert len(choices) == 1


def test_runs_that_differ_in_their_seed_share_programs(tiny, compilations):
    measured_by = []
    for seed in (1, 2):
        tiny.seed = seed
        config, _ = from_mapping(tiny)
        with RewardPool(1) as pool:
            run = make_run(config, load_data(config), pool, lambda step, loss: None)
            train_step(run, 1)
        measured_by.append(group_gradients_of(config, run.model, run.mesh))
    assert measured_by[0] is measured_by[1]
    for name in ("jit(init)", "update", "begin", "choose"):
        assert set(compilations.of(name).values()) == {1}
