from pods_jax.allocation import ALLOCATORS, Allocator
from pods_jax.config import Config
from pods_jax.data.examples import Example
from pods_jax.data.stream import PromptStream


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
