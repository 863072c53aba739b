"""Neither chunks of tokens, nor dropping finished rollouts, nor passes change a completion."""

import functools

import jax
import numpy as np
import pytest

from pods_jax.buckets import bucket
from pods_jax.errors import UserError
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.rollout import decode, sampler
from pods_jax.rollout.layout import block_tokens, kv_bytes, rows_that_fit
from pods_jax.rollout.passes import BLOCK_LIMIT
from pods_jax.rollout.sampler import generate

CONFIG = ModelConfig(
    vocab_size=19,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
)
MODEL = Decoder(CONFIG)
PARAMS = init_params(MODEL, jax.random.key(0))
PROMPTS = [[4], [1, 2, 3, 4, 5], [7, 8, 9]]
T, COUNTS, EOS, KEY = 13, [10, 4, 7], (0, 1, 2), jax.random.key(0)


def sample(**options):
    defaults = {"num_generations": COUNTS, "max_new_tokens": T, "eos_ids": EOS, "chunk_size": T, "key": KEY}
    return generate(MODEL, PARAMS, PROMPTS, **(defaults | options))


@functools.cache
def at_once(temperature):
    return sample(temperature=temperature)


def assert_equal(a, b):
    for name in ("tokens", "lengths", "truncated"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_allclose(a.logprobs, b.logprobs, rtol=0, atol=1e-5)
    assert (a.drawn_logprobs is None) == (b.drawn_logprobs is None)
    if a.drawn_logprobs is not None:
        np.testing.assert_allclose(a.drawn_logprobs, b.drawn_logprobs, rtol=0, atol=1e-5)


# ---------------------------------------------------------------- chunks


def test_the_rollouts_end_at_many_times_and_some_at_the_limit():
    lengths = at_once(1.0).lengths[np.arange(10) < np.array(COUNTS)[:, None]]
    assert len(np.unique(lengths)) >= 6
    assert at_once(1.0).truncated.any()
    assert np.median(lengths) < T / 2


def test_chunks_change_nothing():
    assert_equal(sample(chunk_size=6), at_once(1.0))


@pytest.mark.slow
@pytest.mark.parametrize(("chunk_size", "temperature"), [(2, 1.0), (3, 0.0), (12, 1.0)])
def test_chunks_of_other_sizes_change_nothing(chunk_size, temperature):
    assert_equal(sample(chunk_size=chunk_size, temperature=temperature), at_once(temperature))


def test_chunks_change_nothing_where_the_draw_is_reshaped():
    """Tokens that were seen move with their rollouts."""
    options = {"top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 2.0}
    whole = sample(**options)
    assert (whole.tokens != at_once(1.0).tokens).any()
    assert_equal(sample(chunk_size=3, **options), whole)


def test_what_is_computed_follows_the_rollouts_that_go_on(monkeypatch):
    """Each chunk has the bucket of the blocks that the live rollouts need, and a cache for the tokens it can reach."""
    shapes = []

    def recorded(config, weights, blocks, *args, **options):
        shapes.append((*blocks.samples.shape, blocks.cache[0].k.shape[-1]))
        return proceed(config, weights, blocks, *args, **options)

    proceed = sampler.proceed
    monkeypatch.setattr(sampler, "proceed", recorded)
    completions = sample(chunk_size=3)
    assert_equal(completions, at_once(1.0))
    goes_on = np.where(completions.truncated, T + 1, completions.lengths)
    expected = []
    for start in range(3, T, 3):
        blocks = sum(-(-int((group > start).sum()) // BLOCK_LIMIT) for group in goes_on)
        expected.append((bucket(blocks), BLOCK_LIMIT, min(3 * bucket(start // 3 + 1), T)))
    assert shapes == expected
    assert len({blocks for blocks, *_ in shapes}) > 1


def test_keys_and_values_are_copied_only_where_they_move_or_grow(monkeypatch):
    """Chunks of 2: their caches hold 2, 4, 6, 8, 12, 12 and 13 tokens."""
    seen = []

    def recorded(blocks, origins, rows, samples, capacity):
        before = list(blocks.cache)
        moves = rows is not None or capacity != before[0].k.shape[3]
        after = rearrange(blocks, origins, rows, samples, capacity)
        seen.append((moves, any(a.k is b.k for a, b in zip(before, after.cache, strict=True))))
        return after

    rearrange = sampler.rearrange
    monkeypatch.setattr(sampler, "rearrange", recorded)
    assert_equal(sample(chunk_size=2, eos_ids=()), sample(eos_ids=()))
    assert seen == [(True, False)] * 4 + [(False, True)] + [(True, False)]


def test_a_short_limit_is_one_program(monkeypatch):
    monkeypatch.setattr(sampler, "proceed", None)
    assert sample(chunk_size=64).tokens.shape == (3, 10, T)


# ---------------------------------------------------------------- passes


@pytest.mark.slow
def test_passes_without_chunks_change_nothing():
    assert_equal(sample(max_cache_bytes_per_device=100 * kv_bytes(CONFIG, "float32")), at_once(1.0))


def test_passes_change_nothing_and_use_their_budget(monkeypatch):
    """Each pass's arrays, at full length, are within it; what one pass takes is enough for one, a byte less is not."""
    held = []

    def measured(*args, **options):
        decoded, blocks = begin(*args, **options)
        prompts = sum(x.nbytes for x in jax.tree.leaves(blocks.prompts))
        token = sum(x.nbytes for x in jax.tree.leaves(blocks.cache)) // blocks.cache[0].k.shape[-1]
        held.append(2 * prompts + token * T)
        return decoded, blocks

    begin = sampler.begin
    monkeypatch.setattr(sampler, "begin", measured)
    sample(chunk_size=6)
    (whole,) = held
    assert whole == kv_bytes(CONFIG, "float32") * 6 * block_tokens(BLOCK_LIMIT, 6, T)
    for passes_made, budget in ((1, whole), (2, whole - 1)):
        held.clear()
        assert_equal(sample(chunk_size=6, max_cache_bytes_per_device=budget), at_once(1.0))
        assert len(held) == passes_made
        assert max(held) <= budget


def test_a_budget_for_less_than_a_rollout_is_a_user_error():
    token = kv_bytes(CONFIG, "float32")
    needed = token * block_tokens(1, 6, T)
    assert rows_that_fit(needed, token, 6, T) == 1
    with pytest.raises(UserError, match=rf"max_cache_bytes_per_device = {needed - 1}: .* takes {needed} bytes"):
        sample(max_cache_bytes_per_device=needed - 1)


# ---------------------------------------------------------------- programs


def test_programs_are_one_a_bucket_of_blocks_and_of_cache():
    """Whatever ends when: other prompts, keys, temperatures and lengths of the last chunk share the programs."""
    sizes = {"chunk_size": 6, "num_generations": 4}
    shapes = set()
    decode.proceed.clear_cache()

    def recorded(*args, **options):
        shapes.add((args[2].samples.shape, args[2].cache[0].k.shape))
        return proceed(*args, **options)

    proceed = sampler.proceed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "proceed", recorded)
        for seed in range(4):
            for temperature in (0.7, 1.3):
                sample(**sizes, temperature=temperature, key=jax.random.key(seed))
    assert decode.proceed._cache_size() == len(shapes)
    assert len(shapes) <= 3 * 2  # 1 to 3 blocks; caches for 2 chunks, or all 13 tokens
