"""The largest round of rollouts that a run may ask its sampler for, found by driving its allocator without a model."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pods_jax.allocation import ALLOCATORS
from pods_jax.allocation.base import Exhausted
from pods_jax.config.schema import Config
from pods_jax.data.examples import Example
from pods_jax.data.stream import PromptStream
from pods_jax.errors import UserError
from pods_jax.groups import Group, Request

STEPS = 3
NUM_EXAMPLES = 1 << 15

Varies = Callable[[Request], bool]
"""Whether half of a request's rollouts are right; else none is."""

SCENARIOS: Sequence[Varies] = (lambda request: True, lambda request: request.prompt.uid % 8 == 0)
"""Groups vary everywhere, so that all pilots pass; or one in eight does, so that many candidates are asked for."""


def largest_round(config: Config) -> list[int]:
    """Rollouts of each request of the round that has the most of them, in the first steps of both SCENARIOS."""
    rounds = [counts for varies in SCENARIOS for counts in _rounds(config, varies)]
    return max(rounds, key=sum)


def _rounds(config: Config, varies: Varies) -> Iterator[list[int]]:
    """The counts of the rounds of the first steps, until the allocator has no more to give."""
    allocator = ALLOCATORS[config.allocation.name](config)
    stream = PromptStream([Example("", "")] * NUM_EXAMPLES, [(0,)] * NUM_EXAMPLES, config.seed)
    step = 0
    try:
        while step < STEPS:
            requests = allocator.requests(stream)
            if requests:
                yield [request.count for request in requests]
            ready = allocator.observe([_group(request, varies(request), step) for request in requests])
            if not requests and not ready:
                return
            step += bool(ready)
    except (Exhausted, UserError):
        return


def _group(request: Request, varies: bool, step: int) -> Group:
    """Rollouts of one token, every other one right if they vary."""
    n = request.count
    correct = (np.arange(n) % 2 == 0) & varies
    return Group(
        request=request,
        tokens=np.zeros((n, 1), np.int32),
        logprobs=np.zeros((n, 1), np.float32),
        lengths=np.ones(n, int),
        truncated=np.zeros(n, bool),
        texts=("",) * n,
        rewards=correct.astype(np.float32),
        correct=correct,
        policy_versions=np.full(n, step),
        reasons=("",) * n,
    )
