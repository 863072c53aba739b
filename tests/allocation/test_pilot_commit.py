import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import GradedWorld, ScriptedWorld, World, make, make_config, one_round, one_step, through_a_file

from pods_jax.allocation import ALLOCATORS, Exhausted
from pods_jax.allocation.base import generator
from pods_jax.allocation.pilot_commit import balanced, most_varied
from pods_jax.config.schema import ObjectiveConfig
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.groups import Request


def uids(things):
    return [getattr(t, "request", t).prompt.uid for t in things]


def counters(allocator, *names):
    metrics = allocator.metrics()
    return [int(metrics[f"allocation/{name}"]) for name in names]


# ---------------------------------------------------------------- against a reference


def reference(prompts, successes, orders, *, P, candidates, n, max_staleness, size, num_rounds):
    """Pilot-Commit as plain lists, with thresholds 1/8 and 3/4 and eviction at 1.

    prompts: the stream's, far enough. successes: of n pilots, by prompt. orders: sorts what is in the buffer.
    Yields, for each round, the uids that are committed to, piloted, and (if it fills the batch) trained on.
    """
    prompts, evicted = iter(prompts), {}
    buffer, batch, epoch, step, round_in_step = [], [], 0, 1, 1
    waiting = next(prompts)
    for _ in range(num_rounds):
        # who is piloted
        if waiting.epoch > epoch:
            epoch, buffer, batch = waiting.epoch, [], []
        piloted = []
        while len(piloted) < candidates and waiting.epoch == epoch:
            if waiting.index not in evicted or evicted[waiting.index] == epoch:
                piloted.append(waiting)
            waiting = next(prompts)
        # who is committed to
        buffer = [(prompt, added) for prompt, added in buffer if step - added <= max_staleness]
        committed = orders(buffer, step, round_in_step)[: P - len(batch)]
        chosen = {prompt.uid for prompt, _ in committed}
        buffer = [(prompt, added) for prompt, added in buffer if prompt.uid not in chosen]
        # what comes of it
        batch = batch + [prompt for prompt, _ in committed]
        for prompt in piloted:
            rate = Fraction(successes(prompt), n)
            if rate == 1:
                evicted[prompt.index] = epoch
            if Fraction(1, 8) <= rate <= Fraction(3, 4):
                buffer.append((prompt, step))
        buffer = buffer[-size:]
        full = len(batch) == P
        yield [p.uid for p, _ in committed], [p.uid for p in piloted], [p.uid for p in batch] if full else []
        if full:
            batch, step, round_in_step = [], step + 1, 0
        round_in_step += 1


def order_of(name, successes, n, seed):
    def distance(prompt):
        return abs(Fraction(successes(prompt), n) - Fraction(1, 2))

    def variance_first(items, *_):
        """As the authors' code: by the deviation and the step, both descending."""
        return sorted(items, key=lambda item: (-distance(item[0]), item[1]), reverse=True)

    def oldest_of_equal_variance(items, *_):
        return sorted(items, key=lambda item: distance(item[0]))

    def shuffled(items, step, round_in_step):
        return [items[i] for i in generator(seed, "buffer", step, round_in_step).permutation(len(items))]

    return {
        "least_recent": lambda items, *_: list(items),
        "most_recent": lambda items, *_: sorted(items, key=lambda item: item[1], reverse=True),
        "max_variance": variance_first,
        "max_variance_oldest": oldest_of_equal_variance,
        "random": shuffled,
    }[name]


@pytest.mark.parametrize(
    ("order", "num_examples", "size"),
    [
        ("random", 10_000, 10**5),
        ("max_variance", 1000, 150),
        ("max_variance_oldest", 1000, 150),
        ("most_recent", 1000, 10**5),
        ("least_recent", 1000, 150),
    ],
)
def test_decisions_are_those_of_the_reference(order, num_examples, size):
    """Into the second epoch at least, so that evictions, expiries, overflow and epoch ends take part."""
    P, candidates, n, staleness = 64, 192, 8, 2
    rates = np.random.default_rng(1).beta(0.6, 0.6, num_examples).round(2)
    world = World(rates, seed=5, stream_seed=9)
    prompts = World(rates, seed=5, stream_seed=9).stream.next(4 * num_examples)
    pilots = {p.uid: int(world.correct(Request(p, n)).sum()) for p in prompts}

    def successes(prompt):
        return pilots[prompt.uid]

    allocator = make("pilot_commit", seed=7, P=P, n=16, n_pilot=n, buffer_sampling=order, buffer_size=size,
                     max_staleness=staleness)  # fmt: skip
    num_rounds = 60 if num_examples == 10_000 else 16
    expected = reference(
        prompts, successes, order_of(order, successes, n, 7),
        P=P, candidates=candidates, n=n, max_staleness=staleness, size=size, num_rounds=num_rounds,
    )  # fmt: skip
    for committed, piloted, trained in expected:
        ready = one_round(allocator, world)
        requests = world.rounds[-1]
        assert uids([r for r in requests if r.stage == "commit"]) == committed
        assert uids([r for r in requests if r.stage == "pilot"]) == piloted
        assert uids(requests) == committed + piloted
        assert uids(ready) == trained
        assert all(len(g.rewards) == 16 for g in ready)
    assert all(
        counters(allocator, "evicted", "buffer_cleared", "buffer_overflowed" if size == 150 else "buffer_expired")
    )
    requested = [r for requests in world.rounds for r in requests]
    pilots_requested = [r for r in requested if r.stage == "pilot"]
    candidates_seen, *classes = counters(allocator, "candidates", "passed", "too_easy", "too_hard", "invalid")
    assert candidates_seen == sum(classes) == len(pilots_requested)
    assert counters(allocator, "rollouts_generated", "buffer_pops", "rounds") == [
        sum(r.count for r in requested), len(requested) - len(pilots_requested), num_rounds
    ]  # fmt: skip


def test_pass_rates_are_binomial():
    """True rates .1, .5, .8 pass with the chances .57, .96, .50 at 8 pilots (4 standard deviations)."""
    for rate, chance in ((0.1, 0.5695), (0.5, 0.9609), (0.8, 0.4967)):
        allocator, world = make("pilot_commit", P=100, n=16, n_pilot=8, candidates=2000), World(np.full(2000, rate))
        one_round(allocator, world)
        (passed,) = counters(allocator, "passed")
        assert abs(passed - 2000 * chance) < 4 * np.sqrt(2000 * chance * (1 - chance))


# ---------------------------------------------------------------- rounds


def test_the_first_step_takes_two_rounds_and_binds_pilots_to_commits():
    allocator, world = make("pilot_commit", P=4, n=8), ScriptedWorld(100, lambda p: p.uid % 3)  # 0, 1, 2 of 2
    assert one_round(allocator, world) == []
    ready = one_round(allocator, world)
    first, second = world.rounds
    assert [(r.stage, r.count, r.first) for r in first] == [("pilot", 2, 0)] * 12
    assert [(r.stage, r.count, r.first) for r in second] == [("commit", 6, 2)] * 4 + [("pilot", 2, 0)] * 12
    assert all(p.prompt.uid % 3 == 1 for p in second[:4])
    for group, commit in zip(ready, second[:4], strict=True):
        assert group.request.prompt == commit.prompt
        assert group.texts == tuple(f"{commit.prompt.uid}/{i}" for i in range(8))
        np.testing.assert_array_equal(group.correct, [True, False, True, True, True, False, False, False])
    later = one_round(allocator, world)  # one round is enough from now on
    assert all(g.policy_versions.tolist() == [0, 0, 1, 1, 1, 1, 1, 1] for g in later)


def test_a_pilot_is_committed_to_up_to_the_staleness_bound_and_not_beyond():
    """Ten pilots pass in step 1 and none after it: one is trained on a step, 0, 1 and 2 steps old; the rest expires."""
    allocator = make("pilot_commit", P=1, n=4, n_pilot=2, candidates=10, max_staleness=2, max_rounds=3)
    world = ScriptedWorld(1000, lambda p: 1 if p.uid < 10 else 0)
    ages = []
    for _ in range(3):
        (group,) = one_step(allocator, world)
        ages.append(int(group.policy_versions[-1] - group.policy_versions[0]))
        assert allocator.metrics()["allocation/age_max"] == allocator.metrics()["allocation/age_mean"] == ages[-1]
    assert ages == [0, 1, 2]
    assert counters(allocator, "buffer_size", "buffer_expired") == [7, 0]
    with pytest.raises(UserError, match="no full batch in 3 rounds"):
        one_step(allocator, world)
    assert counters(allocator, "buffer_size", "buffer_expired") == [0, 7]


def test_no_bound_of_staleness_is_ever_passed():
    for staleness, order in itertools.product(range(4), ("random", "least_recent")):
        allocator = make("pilot_commit", P=3, n=4, n_pilot=2, max_staleness=staleness, buffer_sampling=order)
        world = World(np.full(500, 0.5))
        ages = [np.ptp(g.policy_versions) for _ in range(30) for g in one_step(allocator, world)]
        assert max(ages) == staleness


def test_a_full_buffer_drops_the_oldest():
    allocator = make("pilot_commit", P=4, n=4, n_pilot=2, candidates=12, buffer_size=5, buffer_sampling="most_recent")
    world = ScriptedWorld(100, lambda p: 1)
    one_round(allocator, world)
    assert counters(allocator, "buffer_size", "buffer_overflowed", "rollouts_discarded") == [5, 7, 14]
    assert uids(one_step(allocator, world)) == [7, 8, 9, 10]


# ---------------------------------------------------------------- epochs, deferral, eviction


def test_at_an_epochs_end_what_waits_is_discarded_and_counted():
    """10 examples, 4 candidates a round: rounds of 4, 4, 2, then the next epoch's."""
    world = ScriptedWorld(10, lambda p: 1)
    allocator = make("pilot_commit", P=3, n=4, n_pilot=2, candidates=4)
    ready = [len(one_round(allocator, world)) for _ in range(4)]
    assert [len([r for r in requests if r.stage == "pilot"]) for requests in world.rounds] == [4, 4, 2, 4]
    assert ready == [0, 3, 3, 0]
    assert counters(allocator, "buffer_adds", "buffer_pops", "buffer_cleared", "buffer_size") == [14, 6, 4, 4]
    assert counters(allocator, "rollouts_discarded") == [8]
    assert [p.prompt.epoch for p in world.rounds[3]] == [1] * 4


def test_a_partial_batch_at_an_epochs_end_is_discarded_and_counted():
    world = ScriptedWorld(9, lambda p: int(p.uid < 2))
    allocator = make("pilot_commit", P=3, n=4, n_pilot=2, candidates=4)
    for _ in range(3):  # two pass in the first round, are committed to in the second, and wait for a third
        assert one_round(allocator, world) == []
    assert [len(g.rewards) for g in allocator.held()] == [4, 4]
    (before,) = counters(allocator, "rollouts_discarded")
    assert one_round(allocator, world) == []
    assert world.rounds[3][0].prompt.epoch == 1
    assert allocator.held() == []
    assert counters(allocator, "rollouts_discarded") == [before + 8 + 4 * 2]


def test_epochs_can_end_without_effect():
    world = ScriptedWorld(10, lambda p: 1)
    allocator = make("pilot_commit", P=3, n=4, n_pilot=2, candidates=4, clear_at_epoch_end=False)
    assert [len(one_round(allocator, world)) for _ in range(5)] == [0, 3, 3, 3, 3]
    assert counters(allocator, "buffer_cleared", "rollouts_discarded") == [0, 0]


def seen(world, epoch):
    """The examples that were piloted in an epoch."""
    pilots = [r.prompt for requests in world.rounds for r in requests if r.stage == "pilot"]
    return {prompt.index for prompt in pilots if prompt.epoch == epoch}


def test_hard_prompts_are_deferred_easy_ones_skipped_solved_ones_evicted_from_the_next_epoch_on():
    world = ScriptedWorld(20, lambda p: [8, 7, 0, 4][p.index % 4])  # of 8: solved, too easy, too hard, passes
    allocator = make("pilot_commit", P=2, n=16, n_pilot=8, candidates=5)
    while not seen(world, 2):
        one_round(allocator, world)
    assert seen(world, 0) == set(range(20))
    assert seen(world, 1) == {i for i in range(20) if i % 4}
    kinds = [r.prompt.index % 4 for requests in world.rounds for r in requests if r.stage == "pilot"]
    assert counters(allocator, "evicted", "too_easy") == [5, kinds.count(0) + kinds.count(1)]
    assert counters(allocator, "too_hard", "deferred", "passed") == [kinds.count(2), kinds.count(2), kinds.count(3)]


def test_eviction_after_k_epochs_in_a_row():
    """Example 0 is solved in epochs 0 and 1, example 1 in 0 and 2 and 3: with k = 2 they go after 1 and 3."""
    solved_in = {0: {0, 1}, 1: {0, 2, 3}}
    world = ScriptedWorld(12, lambda p: 4 if p.epoch in solved_in.get(p.index, ()) else 2)
    allocator = make("pilot_commit", P=2, n=8, n_pilot=4, candidates=4, evict_after_k_solved=2)
    while not seen(world, 5):
        one_round(allocator, world)
    assert [{0, 1} & seen(world, epoch) for epoch in range(5)] == [{0, 1}, {0, 1}, {1}, {1}, set()]


def test_an_example_can_pass_and_be_evicted():
    """p_solve below p_upper: the two are independent."""
    world = ScriptedWorld(8, lambda p: 3 if p.index < 4 else 2)
    allocator = make("pilot_commit", P=2, n=8, n_pilot=4, candidates=4, p_solve=0.75)
    while not seen(world, 1):
        one_round(allocator, world)
    assert counters(allocator, "passed", "evicted") == [12, 4]
    assert seen(world, 1) == {4, 5, 6, 7}


def test_without_p_solve_nothing_is_evicted():
    world = ScriptedWorld(8, lambda p: 4 if p.index else 2)
    allocator = make("pilot_commit", P=1, n=8, n_pilot=4, candidates=8, p_solve=None, clear_at_epoch_end=False)
    while not seen(world, 1):
        one_round(allocator, world)
    assert seen(world, 1) == set(range(8))
    assert counters(allocator, "evicted") == [0]


# ---------------------------------------------------------------- no groups


def run_out(world, **options):
    """The steps' numbers of groups, what ended the run, and the allocator then."""
    allocator, steps = make("pilot_commit", P=4, n=8, n_pilot=4, **options), []
    while len(steps) < 100:
        try:
            steps.append(len(one_step(allocator, world)))
        except (Exhausted, UserError) as end:
            return steps, end, allocator
    raise AssertionError("it never ended")


@pytest.mark.parametrize(("policy", "error"), [("error", UserError), ("stop", Exhausted), ("train_partial", Exhausted)])
def test_all_too_hard(policy, error):
    steps, end, _ = run_out(World(np.zeros(1000)), on_exhausted=policy)
    assert steps == []
    assert type(end) is error
    message = (
        "allocation pilot_commit: no full batch in 10 rounds; step 1 has 0 of 4 groups. Candidates in the run so far: "
        "120, of which 0 passed, 0 were too easy, 120 too hard, 0 without a finite reward; 0 wait in the buffer. Raise "
        "allocation.options.candidates or max_rounds, widen p_lower..p_upper, or set clear_at_epoch_end = False where "
        "an epoch has only a few rounds"
    )
    more = ". Or set allocation.options.on_exhausted to 'train_partial' or 'stop'"
    assert str(end) == message + more * (policy == "error")


def test_all_too_easy_without_eviction():
    steps, end, _ = run_out(World(np.ones(30)), p_solve=None)
    assert steps == []
    assert "0 passed, 102 were too easy" in str(end)  # rounds of 12, 12, 6 in each epoch


def test_everything_evicted():
    steps, end, _ = run_out(World(np.ones(30)))
    assert steps == []
    assert "every one of the data set's examples was evicted as solved (30 of them)" in str(end)


def test_what_waits_when_everything_is_evicted_is_still_trained_on():
    """Seven prompts pass, and all are evicted (p_solve = 0.5): batches of 4 and 3."""
    world = ScriptedWorld(7, lambda p: 2)
    assert run_out(world, p_solve=0.5, on_exhausted="train_partial")[0] == [4, 3]
    assert run_out(ScriptedWorld(7, lambda p: 2), p_solve=0.5, on_exhausted="stop")[0] == [4]


def test_a_partial_batch_is_trained_on_when_what_waited_for_it_has_expired():
    """Nothing is left to request: the partial batch comes out of an empty round."""
    allocator = make("pilot_commit", P=2, n=4, n_pilot=2, p_solve=0.5, candidates=3, on_exhausted="train_partial")
    world = ScriptedWorld(3, lambda p: 1)
    assert [len(one_step(allocator, world)) for _ in range(2)] == [2, 1]
    with pytest.raises(Exhausted, match="evicted"):
        one_step(allocator, world)


def test_fewer_examples_than_a_batch():
    """With 3 examples, P = 4: an epoch is over in one round, and what passed is cleared, until the rounds are over."""
    steps, end, allocator = run_out(World(np.full(3, 0.5)))
    assert steps == []
    assert "set clear_at_epoch_end = False" in str(end)
    assert counters(allocator, "rounds") == [10]
    allocator = make("pilot_commit", P=4, n=8, n_pilot=4, clear_at_epoch_end=False)
    groups = one_step(allocator, World(np.full(3, 0.5)))
    assert len({g.request.prompt.uid for g in groups}) == 4


@pytest.mark.parametrize("field", ["rewards", "correct"])
def test_not_a_number_never_passes_and_is_not_evicted(field):
    world = World(np.full(50, 0.5))

    def group(request):
        bad = World.group(world, request)
        return dataclasses.replace(bad, **{field: np.full(request.count, np.nan)})

    world.group = group
    steps, end, allocator = run_out(world)
    assert steps == []
    assert "0 passed, 0 were too easy, 0 too hard, 100 without a finite reward" in str(end)
    assert counters(allocator, "deferred", "evicted") == [100, 0]


# ---------------------------------------------------------------- fewer pilots in the union


@pytest.mark.parametrize("n", range(1, 9))
def test_most_varied_is_the_subset_of_largest_variance(n):
    for bits in itertools.product([False, True], repeat=n):
        correct = np.array(bits)
        for count in range(n + 1):
            chosen = most_varied(correct, count)
            assert len(set(chosen.tolist())) == count
            subsets = itertools.combinations(correct, count)
            best = max(sum(s) * (count - sum(s)) for s in subsets)
            assert correct[chosen].sum() * (~correct[chosen]).sum() == best


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=7), st.data())
def test_most_varied_of_graded_values(values, data):
    count = data.draw(st.integers(1, len(values)))
    chosen = most_varied(np.array(values), count)
    assert len(set(chosen.tolist())) == count
    best = max(np.var(subset) for subset in itertools.combinations(values, count))
    assert np.var(np.array(values)[chosen]) == pytest.approx(best)


@pytest.mark.parametrize(("choice", "places"), [("max_variance", [0, 1, 3, 4]), ("first", [0, 1, 2, 3])])
def test_a_pilot_can_be_thinned(choice, places):
    world = ScriptedWorld(100, lambda p: 3)
    allocator = make("pilot_commit", P=2, n=10, n_pilot=6, n_effective=4, pilot_selection=choice)
    for group in one_step(allocator, world):
        uid = group.request.prompt.uid
        assert group.texts == tuple(f"{uid}/{i}" for i in [*places, *range(6, 12)])
        assert group.request.count == 10
    assert counters(allocator, "rollouts_discarded") == [2 * 2]


# ---------------------------------------------------------------- several updates a step


def of_tokens(count):
    """A group of one rollout with so many tokens."""
    world = World([0.5])
    group = world.group(Request(world.stream.next(1)[0], 1))
    return dataclasses.replace(group, lengths=np.array([count]))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.sampled_from([1, 2, 3, 4]))
def test_updates_get_about_as_many_tokens(tokens, parts):
    """Never worse by more than the longest group, which bounds what a greedy choice can leave."""
    groups = [of_tokens(count) for count in tokens]
    order = balanced(groups, parts)
    assert sorted(id(g) for g in order) == sorted(id(g) for g in groups)
    if parts == 1 or len(tokens) % parts:
        assert [id(g) for g in order] == [id(g) for g in groups]
        return
    sums = np.array([int(g.lengths.sum()) for g in order]).reshape(parts, -1).sum(1)
    assert np.ptp(sums) <= max(tokens)


def test_a_step_of_several_updates_is_balanced_by_default():
    def lengths(**options):
        world = ScriptedWorld(100, lambda p: 1)
        whole = world.group

        def group(request):
            length = 1 + 50 * (request.prompt.uid < 2)  # the first two of the step are long
            return dataclasses.replace(whole(request), lengths=np.full(request.count, length))

        world.group = group
        config = make_config("pilot_commit", P=4, n=4, n_pilot=2, buffer_sampling="least_recent", **options)
        config = dataclasses.replace(config, objective=ObjectiveConfig(steps_per_generation=2))
        groups = one_step(ALLOCATORS["pilot_commit"](config), world)
        return [int(g.lengths[0]) for g in groups]

    assert lengths() == [51, 1, 51, 1]
    assert lengths(balance_updates=False) == [51, 51, 1, 1]


# ---------------------------------------------------------------- graded rewards


def test_by_reward_pilots_pass_that_vary_within_the_thresholds():
    """All are wrong; the rewards of a pilot of 4 are those of its example."""
    pilots = {
        0: [0.5, 0.5, 0.5, 0.5],  # equal
        1: [0.0, 0.5, 0.0, 0.5],  # rate 1/4: passes
        2: [0.9, 0.8, 0.9, 1.0],  # rate 0.9: too easy
        3: [0.1, 0.0, 0.0, 0.1],  # rate 0.05: too hard
        4: [1.0, 1.0, 1.0, 1.0],  # solved
        5: [2.0, -1.0, 2.0, -1.0],  # rate 1/2, each held to [0, 1]: passes
    }
    world = GradedWorld(6, lambda p: pilots[p.index])
    options = {"P": 2, "n": 16, "n_pilot": 4, "candidates": 6, "clear_at_epoch_end": False}
    allocator = make("pilot_commit", criterion="reward", **options)
    groups = one_step(allocator, world)
    assert {g.request.prompt.index for g in groups} == {1, 5}
    (pilots_of_first_round, _) = world.rounds
    assert len(pilots_of_first_round) == 6
    assert counters(allocator, "passed", "too_hard", "evicted") == [4, 2, 1]  # 11 pilots: 6, and 5 without example 4
    assert counters(allocator, "too_easy") == [5]
    with pytest.raises(UserError, match="0 passed, 0 were too easy"):
        one_step(make("pilot_commit", **options), GradedWorld(6, lambda p: pilots[p.index]))


def test_by_reward_a_pilot_is_thinned_to_its_most_varied_rewards():
    world = GradedWorld(100, lambda p: [0.5, 0.1, 0.9, 0.6, 0.2, 0.4])
    allocator = make("pilot_commit", P=1, n=8, n_pilot=6, n_effective=2, n_commit=6, criterion="reward")
    (union,) = one_step(allocator, world)
    assert [t.partition("/")[2] for t in union.texts] == ["1", "2", *map(str, range(6, 12))]


# ---------------------------------------------------------------- state and options


def test_a_restored_allocator_still_has_the_prompt_that_waits_for_the_next_epoch():
    """It was drawn in the epoch's last round, so the stream will not give it again."""
    world = ScriptedWorld(10, lambda p: 1)
    allocator, again = (make("pilot_commit", P=8, n=4, n_pilot=2, candidates=4) for _ in range(2))
    for _ in range(3):
        one_round(allocator, world)
    state = through_a_file(allocator.state_dict())
    assert state["source"]["waiting"]["epoch"] == 1
    again.load_state_dict(state)
    assert world.stream.position == 11
    assert uids(again.requests(world.stream)) == [10, 11, 12, 13]


def test_what_is_wrong_with_the_options():
    problems = violations(
        make_config(
            "pilot_commit", n=8, n_pilot=1, n_commit=3, p_lower=0.8, p_upper=0.7, p_solve=0.0, candidates=0,
            evict_after_k_solved=0, buffer_size=0, max_staleness=-1, max_rounds=1, pilot_selection="best",
            buffer_sampling="max_varianc", on_exhausted="halt",
        )
    )  # fmt: skip
    assert problems == [
        "allocation.options.n_pilot = 1 must be at least 2: one rollout can not vary",
        "allocation.options: 1 pilot + 3 commit rollouts must be rollout.num_generations = 8, with at least one commit",
        "allocation.options: 0 <= p_lower <= p_upper <= 1 must hold, got p_lower = 0.8, p_upper = 0.7",
        "allocation.options.p_solve must lie in (0, 1] or be None, got 0.0",
        "allocation.options.candidates must be at least 1, got 0",
        "allocation.options.on_exhausted = 'halt' is unknown (known: error, stop, train_partial)",
        "allocation.options.evict_after_k_solved must be at least 1, got 0",
        "allocation.options.buffer_size must be at least 1, got 0",
        "allocation.options.max_staleness must be at least 0, got -1",
        "allocation.options.max_rounds must be at least 2, got 1",
        "allocation.options.pilot_selection = 'best' is unknown (known: first, max_variance)",
        "allocation.options.buffer_sampling = 'max_varianc' is unknown (did you mean 'max_variance'?)",
    ]
    assert violations(make_config("pilot_commit", n=8, n_pilot=4, p_lower=0.3, p_upper=0.45)) == [
        "allocation.options: no count of 4 pilots lies in p_lower..p_upper = 0.3..0.45"
    ]
    assert violations(make_config("pilot_commit", n=8, p_uper=0.5, max_rounds="ten")) == [
        "allocation.options.max_rounds must be int, got 'ten'",
        "unknown key allocation.options.p_uper (did you mean 'p_upper'?)",
    ]
    with pytest.raises(UserError, match="did you mean 'p_upper'"):
        make("pilot_commit", p_uper=0.5)
