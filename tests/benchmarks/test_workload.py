"""The workload of all contenders: prompts, ends and rewards."""

import pytest
from benchmark.workload import digits, end_ids, reward, write_model

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


def test_rewards_differ():
    assert set(reward([digits(4, seed) for seed in range(20)])) == {0.0, 1.0}
