import dataclasses

import pytest
from ml_collections import FrozenConfigDict

from pods_jax.allocation import ALLOCATORS, Allocator
from pods_jax.config.schema import AllocationConfig, Config
from pods_jax.data.examples import Example
from pods_jax.data.stream import PromptStream
from pods_jax.errors import UserError


def with_groups(count: int) -> Config:
    options = FrozenConfigDict({"groups_per_prompt": count})
    return dataclasses.replace(Config(), allocation=AllocationConfig(options=options))


def test_several_groups_of_a_prompt_have_rollouts_of_their_own():
    stream = PromptStream([Example(str(i), "") for i in range(40)], [[i] for i in range(40)], seed=0)
    requests = ALLOCATORS["uniform"](with_groups(4)).requests(stream)
    assert [r.prompt.uid for r in requests] == [i // 4 for i in range(16)]
    samples = [(r.prompt.uid, r.first + k) for r in requests for k in range(r.count)]
    assert len(set(samples)) == len(samples) == 16 * 64


@pytest.mark.parametrize("count", [0, 3])
def test_groups_that_do_not_divide_a_step(count):
    with pytest.raises(UserError, match=f"groups_per_prompt = {count} must divide rollout.num_prompts = 16"):
        ALLOCATORS["uniform"](with_groups(count))


def test_every_prompt_gets_the_same_and_every_group_is_trained_on():
    allocator = ALLOCATORS["uniform"](Config())
    assert isinstance(allocator, Allocator)
    stream = PromptStream([Example(str(i), "") for i in range(40)], [[i] for i in range(40)], seed=0)
    first, second = allocator.requests(stream), allocator.requests(stream)
    assert [r.count for r in first] == [64] * 16
    assert [r.prompt.uid for r in first + second] == list(range(32))
    groups = []
    assert allocator.observe(groups) is groups
    allocator.load_state_dict(allocator.state_dict())


def test_every_allocator_has_the_interface():
    for name in ALLOCATORS:
        assert isinstance(ALLOCATORS[name](Config()), Allocator)
