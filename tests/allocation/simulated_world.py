"""A world of prompts with known success rates, and a loop that drives an allocator through it as training does."""

import dataclasses
import io
import json

import numpy as np
from ml_collections import FrozenConfigDict

from pods_jax.allocation import ALLOCATORS
from pods_jax.config.schema import AllocationConfig, Config, RolloutConfig, SelectionConfig
from pods_jax.data.examples import Example
from pods_jax.data.stream import PromptStream
from pods_jax.groups import Group, Request


class World:
    """The example i is answered correctly with probability rates[i]; a rollout depends on (uid, sample index) only.

    The shaped rewards vary in every group, so an allocator that filtered on them would be seen.

    Attributes:
      version: counts steps. rounds: the requests of every round; requested: their rollouts.
      handed_over, counters: the rollouts that were ready, and the allocator's counters, when last looked at.
    """

    def __init__(self, rates, seed=0, stream_seed=0):
        self.rates, self.seed, self.version = np.asarray(rates, float), seed, 0
        examples = [Example(str(i), str(i)) for i in range(len(self.rates))]
        self.stream = PromptStream(examples, [[i] for i in range(len(self.rates))], stream_seed)
        self.rounds, self.requested, self.handed_over, self.counters = [], 0, 0, {}

    def correct(self, request: Request) -> np.ndarray:
        u = np.random.default_rng([self.seed, request.prompt.uid, request.first]).random(request.count)
        return u < self.rates[request.prompt.index]

    def rollouts(self, requests) -> list[Group]:
        self.rounds.append(list(requests))
        self.requested += sum(r.count for r in requests)
        return [self.group(r) for r in requests]

    def group(self, request: Request) -> Group:
        n, samples = request.count, np.arange(request.first, request.first + request.count)
        correct = self.correct(request)
        return Group(
            request=request,
            tokens=np.tile(samples[:, None], (1, 3)).astype(np.int32),
            logprobs=np.full((n, 3), -0.5, np.float32),
            lengths=np.full(n, 3),
            truncated=np.zeros(n, bool),
            texts=tuple(f"{request.prompt.uid}/{i}" for i in samples),
            rewards=(correct - 0.01 * np.arange(n)).astype(np.float32),
            correct=correct,
            policy_versions=np.full(n, self.version),
            reasons=("",) * n,
            parts={"correctness": correct.astype(np.float32)},
        )


def make(name, *, seed=0, P=4, n=8, m=2, **options):
    return ALLOCATORS[name](make_config(name, seed=seed, P=P, n=n, m=m, **options))


def make_config(name, *, seed=0, P=4, n=8, m=2, **options):
    return Config(
        seed=seed,
        rollout=RolloutConfig(num_prompts=P, num_generations=n),
        selection=SelectionConfig(num_kept=m),
        allocation=AllocationConfig(name, FrozenConfigDict(options)),
    )


def one_round(allocator, world) -> list[Group]:
    """Requests, rollouts, and what is ready; the books are checked on both sides of the generation."""
    requests = allocator.requests(world.stream)
    check_books(allocator, world)
    ready = allocator.observe(world.rollouts(requests))
    world.version += bool(ready)
    check_books(allocator, world, handed_over=ready)
    return ready


def one_step(allocator, world) -> list[Group]:
    while not (ready := one_round(allocator, world)):
        pass
    return ready


def check_books(allocator, world, handed_over=()):
    """generated = handed over + discarded + held at every moment; counters only grow; buffer entries are all found."""
    m = {k.removeprefix("allocation/"): v for k, v in allocator.metrics().items()}
    held = sum(len(g.rewards) for g in allocator.held())
    assert m["rollouts_held"] == held
    assert m["rollouts_generated"] == world.requested
    assert m["rollouts_generated"] == m["rollouts_handed_over"] + m["rollouts_discarded"] + held
    world.handed_over += sum(len(g.rewards) for g in handed_over)
    assert m["rollouts_handed_over"] == world.handed_over
    if "buffer_adds" in m:
        gone = m["buffer_pops"] + m["buffer_expired"] + m["buffer_overflowed"] + m["buffer_cleared"]
        assert m["buffer_adds"] == m["passed"] == gone + m["buffer_size"]
    gauges = ("rollouts_held", "buffer_size", "age_mean", "age_max", "p_easy", "p_hard")
    counters = {k: v for k, v in m.items() if k not in gauges}
    assert all(counters[k] >= before for k, before in world.counters.items())
    world.counters = counters


def through_a_file(state):
    """JSON for all but arrays, npz for those, as a checkpoint holds them."""
    arrays = {}

    def take(value):
        if isinstance(value, np.ndarray):
            arrays[str(len(arrays))] = value
            return {"__array__": str(len(arrays) - 1)}
        if isinstance(value, dict):
            assert all(type(k) is str for k in value)
            return {k: take(v) for k, v in value.items()}
        return [take(v) for v in value] if isinstance(value, list | tuple) else value

    def give(value):
        if isinstance(value, dict):
            return loaded[value["__array__"]] if "__array__" in value else {k: give(v) for k, v in value.items()}
        return [give(v) for v in value] if isinstance(value, list) else value

    text, file = json.dumps(take(state)), io.BytesIO()
    np.savez(file, **arrays)
    loaded = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    return give(json.loads(text))


class ScriptedWorld(World):
    """The first successes(prompt) rollouts of a pilot are right, and the first half of a commit."""

    def __init__(self, num_examples, successes):
        super().__init__(np.zeros(num_examples))
        self.successes = successes

    def correct(self, request):
        return np.arange(request.count) < (request.count // 2 if request.first else self.successes(request.prompt))


class GradedWorld(World):
    """No rollout is right; the rewards of a request are rewards(prompt), repeated up to its count."""

    def __init__(self, num_examples, rewards):
        super().__init__(np.zeros(num_examples))
        self.rewards = rewards

    def group(self, request):
        values = np.resize(self.rewards(request.prompt), request.count).astype(np.float32)
        return dataclasses.replace(super().group(request), rewards=values)
