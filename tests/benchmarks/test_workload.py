"""The workload of all contenders: prompts, ends and rewards."""

import numpy as np
import pytest
from benchmark.workload import digits, end_ids, heavy_tailed_length, reward, write_model

from pods_jax.data.tokenizers import load_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    write_model("tiny", path)
    return str(path)


def test_a_prompt_has_a_token_a_digit(folder):
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode_prompt(digits(50)) == [3 + int(d) for d in digits(50)]
    assert tokenizer.decode([3, 200]) != tokenizer.decode([3, 201])


def test_one_in_mean_length_tokens_ends_a_completion():
    assert len(end_ids(49_152, 16)) == 49_152 / 16
    assert end_ids(49_152, None) == []


def test_first_tokens_make_lengths_lognormal():
    """Mean, median and tail of sigma = 1, over all of a vocabulary."""
    lengths = np.array([heavy_tailed_length(i, 49_152, 1000) for i in range(49_152)])
    assert lengths.mean() == pytest.approx(1000, rel=0.01)
    assert np.median(lengths) == pytest.approx(1000 * np.exp(-0.5), rel=0.01)
    long = lengths > 4000
    assert long.mean() == pytest.approx(0.03, abs=0.001)
    assert lengths[long].sum() / lengths.sum() == pytest.approx(0.19, abs=0.01)


def test_rewards_differ():
    assert set(reward([digits(4, seed) for seed in range(20)])) == {0.0, 1.0}
