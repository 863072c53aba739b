"""A completion ends with the first token with which its text contains a stop string, whatever the chunks."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.rollout import generate
from pods_jax.rollout.stop_strings import StopStrings

PIECES = ["<eos>", "a", "b", "ab", "ba", "bab", " a", "", "\N{SNOWMAN}", "</", "a>"]
CONFIG = ModelConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
)
MODEL = Decoder(CONFIG)
PARAMS = init_params(MODEL, jax.random.key(0))
T = 13


def decode(ids):
    return "".join(PIECES[i] for i in ids if i)


def sample(**options):
    sizes = {"num_generations": 12, "max_new_tokens": T, "key": jax.random.key(3), "eos_ids": (0,)}
    return generate(MODEL, PARAMS, [[1, 2], [4]], top_p=0.95, **sizes, **options)


def first_end(ids, text_of, strings):
    """By brute force."""
    ends = (k for k in range(1, len(ids) + 1) if any(s in text_of(ids[:k]) for s in strings))
    return next(ends, None)


@pytest.mark.parametrize("chunk_size", [2, 5, T])
def test_completions_are_cut_where_their_text_first_contains_a_string(chunk_size):
    strings = ("abba", "\N{SNOWMAN} a")
    free = sample()
    stopped = sample(stops=StopStrings(decode, strings), chunk_size=chunk_size)
    found = 0
    for p, i in np.ndindex(free.lengths.shape):
        ids = free.tokens[p, i, : free.lengths[p, i]].tolist()
        end = first_end(ids, decode, strings)
        length = len(ids) if end is None else end
        found += end is not None
        assert stopped.lengths[p, i] == length
        assert stopped.tokens[p, i, :length].tolist() == ids[:length]
        assert stopped.truncated[p, i] == (end is None and free.truncated[p, i])
        np.testing.assert_array_equal(stopped.tokens[p, i, length:], 0)
        for name in ("logprobs", "drawn_logprobs"):
            mine, whole = (getattr(c, name)[p, i] for c in (stopped, free))
            np.testing.assert_allclose(mine[:length], whole[:length], rtol=0, atol=1e-5)
            assert not mine[length:].any()
    assert 4 < found < free.lengths.size


def as_bytes(ids):
    """A decoder of bytes: an incomplete character is a replacement character; 255 spells nothing."""
    return bytes(i for i in ids if i != 255).decode(errors="replace")


BYTES = st.lists(st.sampled_from([*"\N{SNOWMAN}ab".encode(), 255, 255, 255]), max_size=60)


@given(BYTES, st.integers(0, 60), st.sampled_from([("a\N{SNOWMAN}b",), ("ab", "\N{SNOWMAN}\N{SNOWMAN}"), ("bbb",)]))
def test_the_end_is_the_first_whatever_spells_it(ids, start, strings):
    end = first_end(ids, as_bytes, strings)
    if end is None or end > start:
        assert StopStrings(as_bytes, strings).end(ids, min(start, len(ids))) == end


def test_only_the_last_tokens_are_decoded_where_nothing_stops():
    sizes = []

    def measured(ids):
        sizes.append(len(ids))
        return "x" * len(ids)

    assert StopStrings(measured, ("stop",)).end([0] * 1000, 990) is None
    assert max(sizes) < 30
