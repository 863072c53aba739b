"""Passes: their rollouts, their goals, and that they change no completion, however uneven the lengths are."""

import functools
import itertools

import jax
import numpy as np
import pytest
from benchmark.our_sampler import FirstTokenDecides
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.buckets import ceil_div
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.rollout import decode, sampler
from pods_jax.rollout.layout import block_tokens, kv_bytes
from pods_jax.rollout.passes import ENOUGH_ROLLOUTS, longest_passes, make_room, milestones
from pods_jax.rollout.sampler import generate

# ---------------------------------------------------------------- which rollouts, and how far


@pytest.mark.parametrize(
    ("max_new_tokens", "chunk_size", "expected"),
    [
        (512, 64, [128, 512]),
        (500, 64, [128, 500]),
        (320, 64, [320]),
        (8192, 64, [256, 896, 2688, 8192]),
        (640, 64, [192, 640]),
        (64, 64, [64]),
    ],
)
def test_milestones_are_thirds_in_whole_chunks_and_two_at_least(max_new_tokens, chunk_size, expected):
    assert milestones(max_new_tokens, chunk_size) == expected


COUNTS_OF_PROMPTS = st.lists(st.integers(1, 9), min_size=1, max_size=12)
SIZES = {
    "counts": COUNTS_OF_PROMPTS,
    "S": st.integers(1, 8),
    "T": st.integers(1, 70),
    "devices": st.integers(1, 3),
    "chunk_size": st.integers(1, 9),
    "blocks": st.none() | st.integers(1, 6),
}


def room_of(counts, S, T, devices, chunk_size, blocks):
    budget = blocks and 8 * blocks * block_tokens(4, 2 * S, T)
    return make_room(counts, 8, S, T, devices, chunk_size, budget)


def rollouts_of(passes):
    return sorted(
        (p, r)
        for one in passes
        for p, rows in zip(one.layout.groups.tolist(), one.layout.rows.tolist(), strict=True)
        for r in rows
        if r >= 0
    )


@given(st.fixed_dictionaries(SIZES), st.integers(0, 5), st.randoms(use_true_random=False))
def test_every_rollout_that_goes_on_is_in_one_pass_to_the_next_milestone_or_the_end(sizes, number, random):
    room = room_of(**sizes)
    counts, T = sizes["counts"], sizes["T"]
    starts = [0, *milestones(T, room.chunk_size)[:-1]]
    start = starts[number % len(starts)]
    going = [np.array([r for r in range(count) if random.random() < 0.6], int) for count in counts]
    going[0] = np.array([counts[0] - 1])
    found = room.passes(going, start)
    assert rollouts_of(found) == [(p, r) for p, rows in enumerate(going) for r in rows.tolist()]
    (goal,) = {one.goal for one in found}
    assert {one.start for one in found} == {start}
    assert goal == T if len(found) == 1 and room.tokens is None else goal in milestones(T, room.chunk_size)
    assert goal > start
    for one in found:
        blocks = len(one.layout.groups) // room.devices
        size = one.layout.rows.shape[1]
        if room.tokens is not None:
            assert blocks * block_tokens(size, room.prompt_length, goal) <= room.tokens
        assert goal == T or blocks * size <= max(ENOUGH_ROLLOUTS, room.blocks(size, T) * size)
        for tokens in range(start + 1, goal + 1):
            assert min(tokens, goal) <= room.capacity(tokens, goal) <= goal


@given(st.fixed_dictionaries(SIZES))
def test_the_longest_call_takes_every_rollout_through_every_token_once(sizes):
    room = room_of(**sizes)
    counts = sizes["counts"]
    steps = [(rollout, one.start, one.goal) for one in longest_passes(room, counts) for rollout in rollouts_of([one])]
    for rollout in [(p, r) for p, count in enumerate(counts) for r in range(count)]:
        spans = [(start, goal) for found, start, goal in steps if found == rollout]
        assert [start for start, _ in spans] == [0, *(goal for _, goal in spans[:-1])]
        assert spans[-1][1] == room.max_new_tokens


def test_early_passes_hold_more_rollouts_than_fit_at_full_length():
    """Room for 16 at 512 tokens is room for twice as many at 128, in buckets and with their prompts."""
    room = make_room([4] * 16, 1, 1, 512, 1, 64, 4 * block_tokens(4, 1, 512))
    assert [(one.start, one.goal, one.layout.rows.size) for one in longest_passes(room, [4] * 16)] == [
        *[(0, 128, 32)] * 2,
        *[(128, 512, 16)] * 4,
    ]


def test_rollouts_that_go_on_are_in_blocks_of_their_number_and_in_one_pass_if_they_fit():
    room = make_room([8] * 8, 1, 1, 512, 1, 64, 4 * block_tokens(4, 1, 512))
    going = [np.array([1, 6])] * 6 + [np.array([], int)] * 2
    (one,) = room.passes(going, 128)
    assert (one.start, one.goal) == (128, 512)
    assert one.layout.rows.tolist() == [[1, 6]] * 6


def test_what_is_computed_again_at_a_time_has_bounded_scores():
    room = make_room([8] * 8, 1, 100, 4096, 2, 64, 10**9)
    (one,) = room.passes([np.arange(8)] * 8, 2048)
    for num_heads in (1, 64, 4096):
        width = room.width(one, num_heads)
        assert 64 % width == 0
        keys = 128 + room.capacity(2048 + 64, 4096)
        scores = 32 * num_heads * keys
        assert width == 1 or width * scores <= 2**28
        assert width == 64 or 2 * width * scores > 2**28


# ---------------------------------------------------------------- completions

CONFIG = ModelConfig(
    vocab_size=64,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
)
MODEL = Decoder(CONFIG)
PARAMS = init_params(MODEL, jax.random.key(0))
PROMPTS = [[4, 5, 6], [1, 2, 3, 4], [7, 8, 9], [60, 61, 62]]
T, COUNTS, CHUNK = 33, [10, 4, 7, 1], 4


TAIL = FirstTokenDecides(vocab_size=64, mean_length=10)


def sample(blocks=None, **options):
    budget = blocks and blocks * kv_bytes(CONFIG, "float32") * block_tokens(4, 4, T)
    sizes = {"num_generations": COUNTS, "max_new_tokens": T, "key": jax.random.key(0), "chunk_size": CHUNK}
    defaults = sizes | {"stops": TAIL, "max_cache_bytes_per_device": budget}
    return generate(MODEL, PARAMS, PROMPTS, **(defaults | options))


@functools.cache
def at_once():
    return sample(chunk_size=T)


def assert_equal(a, b):
    for name in ("tokens", "lengths", "truncated"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("logprobs", "drawn_logprobs"):
        if getattr(b, name) is not None:
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=2e-5, err_msg=name)


def test_lengths_have_a_heavy_tail():
    lengths = at_once().lengths[np.arange(10) < np.array(COUNTS)[:, None]]
    assert (lengths <= 8).mean() > 0.5
    assert (lengths > 16).sum() >= 2
    assert at_once().truncated.any()


def recorded(monkeypatch, name, note):
    program = getattr(sampler, name)

    def recording(*args, **options):
        note(args, options)
        return program(*args, **options)

    monkeypatch.setattr(sampler, name, recording)


@pytest.mark.parametrize(
    ("blocks", "chunk_size", "expected"),
    [(2, CHUNK, {12}), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, CHUNK, {12}), (1, 1, {3, 11})))],
)
def test_passes_to_milestones_change_no_completion(monkeypatch, blocks, chunk_size, expected):
    starts = []
    recorded(monkeypatch, "resume", lambda args, options: starts.append(args[7].shape[-1]))
    assert_equal(sample(blocks, chunk_size=chunk_size), at_once())
    assert set(starts) == expected


def test_what_was_seen_is_known_again_where_the_draw_depends_on_it():
    """Milestones of 6 and 17 tokens, which all rollouts reach."""
    options = {"repetition_penalty": 1.5, "top_k": 30, "top_p": 0.95, "stops": None, "max_new_tokens": 17}
    whole = sample(chunk_size=17, **options)
    assert whole.truncated.sum() == sum(COUNTS)
    assert_equal(sample(1, chunk_size=3, **options), whole)


@pytest.mark.slow
def test_passes_change_nothing_where_tokens_end_completions():
    options = {"stops": None, "eos_ids": tuple(range(0, 64, 9))}
    assert_equal(sample(1, **options), sample(chunk_size=T, **options))


def test_the_cache_that_is_computed_again_is_the_one_that_was_there(monkeypatch):
    """Keys and values of the tokens before the last, of real rollouts."""
    layout = make_room(COUNTS, 1, 5, T, 1, CHUNK, None).passes([np.arange(n) for n in COUNTS], 0)[0].layout
    drawing = decode.Drawing(greedy=False)
    job = {}
    recorded(monkeypatch, "begin", lambda args, options: job.update(args=args))
    sample(stops=None, max_new_tokens=9, chunk_size=8)
    config, weights, *arrays, key, temperature = job["args"]
    decoded, there = decode.begin(
        config, weights, *arrays, key, temperature, length=8, drawing=drawing, capacity=12
    )  # fmt: skip
    for width in (1, 2, 8):
        again = decode.resume(config, weights, *arrays, decoded.tokens, drawing=drawing, capacity=12, width=width)
        assert int(again.t) == int(there.t) == 8
        real = layout.rows >= 0
        np.testing.assert_array_equal(np.asarray(again.token)[real], np.asarray(there.token)[real])
        for one, other in zip(again.cache, there.cache, strict=True):
            np.testing.assert_allclose(one.k[real.ravel(), ..., :7], other.k[real.ravel(), ..., :7], atol=1e-5)
            np.testing.assert_allclose(one.v[real.ravel(), :, :7], other.v[real.ravel(), :, :7], atol=1e-5)


def test_rollouts_that_have_ended_are_told_of_before_the_next_pass_and_change_no_more():
    told = []
    whole = sample(1, on_ended=lambda c, ended: told.append((ended, jax.tree.map(np.copy, c))))
    masks = [ended for ended, _ in told]
    assert len(masks) > 2
    for before, after in itertools.pairwise(masks):
        assert (before <= after).all()
    for ended, then in told:
        for name in ("tokens", "logprobs", "lengths", "truncated"):
            np.testing.assert_array_equal(getattr(then, name)[ended], getattr(whole, name)[ended], err_msg=name)
    assert not masks[-1][np.arange(10) >= np.array(COUNTS)[:, None]].any()
    in_the_last = (whole.lengths > 0) & ~masks[-1]
    assert 0 < in_the_last.sum() < masks[-1].sum()


def test_one_pass_tells_of_nothing():
    told = []
    sample(on_ended=lambda *a: told.append(a))
    assert not told


@pytest.mark.slow
def test_fewer_tokens_are_decoded_than_in_passes_of_full_length(monkeypatch):
    """Rows times tokens, padding and finished rollouts counted, of the programs that decode."""
    spent = []
    recorded(monkeypatch, "begin", lambda args, options: spent.append(args[6].size * CHUNK))
    recorded(monkeypatch, "proceed", lambda args, options: spent.append(args[2].samples.size * CHUNK))
    calls = []
    for goals in (milestones, lambda max_new_tokens, chunk_size: [max_new_tokens]):
        monkeypatch.setattr("pods_jax.rollout.passes.milestones", goals)
        spent.clear()
        assert_equal(sample(1), at_once())
        calls.append((len(spent), sum(spent)))
    assert calls[0][0] < calls[1][0] * 0.8
    assert ceil_div(int(at_once().lengths.sum()), CHUNK) <= calls[0][1]
