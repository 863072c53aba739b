import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.buckets import bucket, pad_prompts

PROMPTS = st.lists(st.lists(st.integers(0, 99), max_size=40), min_size=1, max_size=20)


def test_the_first_buckets():
    assert sorted({bucket(size) for size in range(1, 50)}) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]


@given(st.integers(1, 1 << 20))
def test_a_bucket_holds_its_size_and_wastes_less_than_half_of_it(size):
    assert size <= bucket(size) < max(1.5 * size, size + 1)
    assert bucket(bucket(size)) == bucket(size)
    assert bucket(size) <= bucket(size + 1)


@given(PROMPTS, st.integers(0, 99))
def test_padding_keeps_every_prompt(prompts, pad_id):
    tokens, lengths = pad_prompts(prompts, pad_id)
    assert lengths[: len(prompts)].tolist() == [len(p) for p in prompts]
    assert not lengths[len(prompts) :].any()
    for row, length, prompt in zip(tokens, lengths, prompts, strict=False):
        assert row[:length].tolist() == prompt
    padding = np.arange(tokens.shape[1]) >= lengths[:, None]
    assert (tokens[padding] == pad_id).all()


@given(PROMPTS)
def test_padded_sizes_are_buckets(prompts):
    assert pad_prompts(prompts)[0].shape == (bucket(len(prompts)), bucket(max(map(len, prompts))))
