"""Every allocator in every small world: accounts, sample indices, restoring, an end to every step."""

import dataclasses
import gc
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_world import World, make, make_config, one_round, one_step, through_a_file

from pods_jax.allocation import ALLOCATORS, Allocator, Exhausted
from pods_jax.allocation.buffer import ORDERS
from pods_jax.config.validate import violations
from pods_jax.errors import UserError

OWN = [name for name, part in ALLOCATORS.items() if part.__module__.startswith("pods_jax.")]  # tests add some, too
SMALL = st.integers(1, 12)
CANDIDATES = st.integers(5, 30)  # at least as many as the prompts of a step
POLICY = st.sampled_from(["error", "train_partial", "stop"])
OPTIONS = {
    "dynamic_sampling": st.fixed_dictionaries(
        {
            "candidates": SMALL,
            "max_rounds": st.integers(1, 4),
            "on_exhausted": POLICY,
            "surplus": st.sampled_from(["discard", "keep"]),
        }
    ),
    "pilot_commit": st.fixed_dictionaries(
        {
            "n_pilot": st.integers(2, 7),
            "candidates": SMALL,
            "p_lower": st.sampled_from([0.0, 0.125, 0.3]),
            "p_upper": st.sampled_from([0.7, 0.75, 1.0]),
            "p_solve": st.sampled_from([None, 0.5, 1.0]),
            "evict_after_k_solved": st.integers(1, 3),
            "buffer_size": SMALL,
            "buffer_sampling": st.sampled_from(list(ORDERS)),
            "max_staleness": st.integers(0, 3),
            "clear_at_epoch_end": st.booleans(),
            "max_rounds": st.integers(2, 5),
            "on_exhausted": POLICY,
        }
    ),
    "speed": st.fixed_dictionaries({"candidates": SMALL, "max_rounds": st.integers(2, 5), "on_exhausted": POLICY}),
    "greso": st.fixed_dictionaries({"candidates": SMALL, "max_rounds": st.integers(1, 4), "on_exhausted": POLICY}),
    "knapsack": st.fixed_dictionaries({"n_max": st.just(16), "allow_fallback": st.booleans()}),
    "reinforce_ada": st.fixed_dictionaries(
        {
            "max_rounds": st.sampled_from([1, 2, 4]),
            "exit_rule": st.sampled_from(["balanced", "positive_focused"]),
        }
    ),
    "mopps": st.fixed_dictionaries({"choice": st.sampled_from(["nearest", "threshold"]), "candidates": CANDIDATES}),
    "vip": st.fixed_dictionaries({"variance": st.sampled_from(["rloo", "dr_grpo"]), "n_max": st.integers(8, 20)}),
    "cures": st.fixed_dictionaries({"temperature": st.sampled_from([None, 0.1]), "candidates": CANDIDATES}),
    "prompt_curriculum": st.fixed_dictionaries({"candidates": CANDIDATES}),
}
RICH = {  # options that make much of the state matter, for a world in which no step fails
    "dynamic_sampling": {"surplus": "keep", "candidates": 5},
    "pilot_commit": {"n_pilot": 4, "p_solve": 0.75, "evict_after_k_solved": 2, "buffer_size": 14, "max_staleness": 1},
    "speed": {"candidates": 7},
    "greso": {"p_step": 0.1},
    "knapsack": {"n_max": 16},
    "reinforce_ada": {"max_rounds": 4},
    "mopps": {"candidates": 12},
    "vip": {},
    "cures": {"candidates": 12, "temperature": 0.1},
    "prompt_curriculum": {"candidates": 12},
}
RATES = st.lists(st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=40)
WORLDS = st.tuples(RATES, st.integers(0, 99), st.integers(1, 5))  # rates, seed, P


def attempt(allocator, world):
    """The groups of a round, and the exception that ended it."""
    try:
        return one_round(allocator, world), None
    except (Exhausted, UserError) as end:
        return [], end


def plain(groups):
    """Everything in groups, comparable with ==."""
    return [
        {
            k: v.tolist() if isinstance(v, np.ndarray) else {n: a.tolist() for n, a in v.items()} if k == "parts" else v
            for k, v in ((f.name, getattr(g, f.name)) for f in dataclasses.fields(g))
        }
        for g in groups
    ]


def test_every_allocator_is_tested_here():
    assert set(OPTIONS) | {"uniform"} == set(OWN)


@pytest.mark.parametrize("name", OWN)
def test_defaults_are_valid_and_unknown_options_are_reported(name):
    assert isinstance(make(name), Allocator)
    assert violations(make_config(name, n=8, m=2)) == []
    (problem,) = violations(make_config(name, max_ronds=3))
    assert problem.startswith("unknown key allocation.options.max_ronds (")


@pytest.mark.parametrize("name", OPTIONS)
@given(data=st.data(), world=WORLDS, restart=st.integers(0, 11))
@settings(max_examples=40)
def test_any_world(name, data, world, restart):
    """A dozen rounds; another allocator, restored before the round `restart`, sees and does the same.

    The books are checked around each round by `one_round`.
    """
    rates, seed, P = world
    options = data.draw(OPTIONS[name]) | {"criterion": data.draw(st.sampled_from(["correctness", "reward"]))}
    first, world = make(name, seed=seed, P=P, **options), World(rates, seed, seed)
    second, samples, rounds = None, set(), 0
    limit = options.get("max_rounds", 1)
    for i in range(12):
        if i == restart:
            second, other = make(name, seed=seed, P=P, **options), World(rates, seed, seed)
            second.load_state_dict(through_a_file(first.state_dict()))
            other.stream.load_state_dict(world.stream.state_dict())
            other.version, other.rounds, other.requested = world.version, list(world.rounds), world.requested
            other.handed_over, other.counters = world.handed_over, world.counters
        ready, end = attempt(first, world)
        if second:
            again, second_end = attempt(second, other)
            assert plain(again) == plain(ready)
            assert (type(second_end), str(second_end)) == (type(end), str(end))
            assert other.rounds == world.rounds
            assert second.metrics() == first.metrics()
        if end:
            assert name in str(end)
            assert isinstance(end, UserError) == (options["on_exhausted"] == "error")
            return
        rounds = 0 if ready else rounds + 1
        assert rounds < limit
        for group in ready:
            assert group.request.count == len(group.rewards) == len(group.texts)
            assert len({t.partition("/")[0] for t in group.texts}) == 1
            new = set(group.texts)
            assert len(new) == len(group.texts)
            assert not new & samples
            samples |= new
    for requests in world.rounds:
        assert all(r.count > 0 for r in requests)


@pytest.mark.parametrize("name", OPTIONS)
def test_restored_before_any_round_it_goes_on_the_same(name):
    """40 rounds over several epochs; from before each of them, the next six again."""
    rates = np.random.default_rng(0).beta(0.7, 0.5, 50)
    allocator, world = make(name, P=4, n=8, m=4, **RICH[name]), World(rates)
    saved, log = [], []
    for _ in range(40):
        saved.append((through_a_file(allocator.state_dict()), world.stream.state_dict(), world.version))
        ready = one_round(allocator, world)
        log.append((world.rounds[-1], plain(ready), allocator.metrics()))
    for start, (state, position, version) in enumerate(saved):
        again, other = make(name, P=4, n=8, m=4, **RICH[name]), World(rates)
        again.load_state_dict(state)
        other.stream.load_state_dict(position)
        other.version = version
        for requests, ready, metrics in log[start : start + 6]:
            assert again.requests(other.stream) == requests
            mine = again.observe(other.rollouts(requests))
            other.version += bool(mine)
            assert plain(mine) == ready
            assert again.metrics() == metrics


# ---------------------------------------------------------------- graded rewards


@pytest.mark.parametrize("name", ["dynamic_sampling", "greso", "pilot_commit", "speed"])
def test_by_reward_a_group_passes_whose_rewards_vary(name):
    """Correctness varies in one example of four, rewards between 1/4 and 3/4 in every one."""
    world = World([0.0, 0.0, 0.0, 0.5] * 25)
    whole = world.group

    def group(request):
        return dataclasses.replace(whole(request), rewards=np.linspace(0.25, 0.75, request.count).astype(np.float32))

    world.group = group
    passed = {}
    for criterion in ("correctness", "reward"):
        allocator = make(name, P=8, n=16, candidates=100, criterion=criterion)
        allocator.observe(world.rollouts(allocator.requests(world.stream)))
        metrics = allocator.metrics()
        assert metrics["allocation/candidates"] == 100
        passed[criterion] = metrics["allocation/passed"]
    assert passed["correctness"] <= 25
    assert passed["reward"] == 100


@pytest.mark.parametrize("name", OPTIONS)
def test_every_allocator_takes_a_criterion(name):
    (problem,) = violations(make_config(name, criterion="rewards"))
    assert problem == "allocation.options.criterion = 'rewards' is unknown (did you mean 'reward'?)"


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pilot_commit", {"candidates": 40}),
        ("speed", {"candidates": 40}),
        ("dynamic_sampling", {"candidates": 12, "surplus": "keep"}),
    ],
)
def test_what_waits_for_a_later_step_keeps_no_round_alive(name, options):
    """The groups of a round are views into its arrays, as the sampler's are."""
    world, rounds = World(np.full(200, 0.5)), []
    whole = world.rollouts

    def rollouts(requests):
        if not (groups := whole(requests)):
            return []
        tokens = np.stack([np.resize(g.tokens, (8, 3)) for g in groups])
        rounds.append(weakref.ref(tokens))
        return [dataclasses.replace(g, tokens=tokens[i, : len(g.rewards)]) for i, g in enumerate(groups)]

    world.rollouts = rollouts
    allocator = make(name, P=4, n=8, **options)
    for _ in range(3):
        one_step(allocator, world)
    gc.collect()
    assert allocator.held()
    assert [arrays() for arrays in rounds] == [None] * len(rounds)


# ---------------------------------------------------------------- documentation


def test_the_tables_of_options_are_complete():
    """Those of docs/allocation.md have every option with its default, and no other."""
    guide = (Path(__file__).parents[2] / "docs/allocation.md").read_text()
    for name in OWN:
        (table,) = re.findall(rf"^### {name}\n\n(.*?)\n\n", guide, re.DOTALL | re.MULTILINE)
        documented = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", table, re.MULTILINE))
        fields = dataclasses.fields(ALLOCATORS[name].Options)
        defaults = {f.name: round(f.default, 4) if type(f.default) is float else f.default for f in fields}
        assert documented == {option: repr(default) for option, default in defaults.items()}


def test_the_table_of_metrics_is_complete():
    guide = (Path(__file__).parents[2] / "docs/allocation.md").read_text()
    _, _, books = guide.partition("## The books")
    documented = set(re.findall(r"`(\w+)`", books.partition("## An allocator of your own")[0]))
    for name in OPTIONS:
        assert {key.removeprefix("allocation/") for key in make(name).metrics()} <= documented
