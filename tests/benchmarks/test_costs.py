import math

import jax
import pytest
from benchmark import costs
from benchmark.workload import SHAPES

from pods_jax.models.decoder import Decoder, init_params

TINY = SHAPES["tiny"]
MATRICES = 2 * (32 * 64 + 32 * 32 + 3 * 32 * 64)  # of 2 layers: q, k and v; o; gate, up and down


def test_matrix_sizes_are_those_of_the_weights():
    shapes = jax.eval_shape(lambda: init_params(Decoder(SHAPES["qwen2.5-1.5b"]), jax.random.key(0)))["layers"]
    entries = sum(math.prod(x.shape) for x in jax.tree.leaves(shapes) if len(x.shape) == 3)
    assert 28 * costs.layer_matrix_size(SHAPES["qwen2.5-1.5b"]) == entries
    assert 2 * costs.layer_matrix_size(TINY) == MATRICES


def test_forward_flops_of_two_tokens():
    """Each weight is multiplied and added once; each of 2 layers x 32 query dimensions meets 5 keys and 5 values."""
    assert costs.forward_flops(TINY, 2, 5.0, 1) == 2 * 2 * MATRICES + 2 * (2 * 32 * 5 * 2) * 2 + 2 * 32 * 256


def test_groups_share_their_prompt():
    separate = costs.group_flops(TINY, 8, 1, 16, 8)
    shared = costs.group_flops(TINY, 1, 8, 16, 8)
    assert separate - shared == pytest.approx(7 * costs.forward_flops(TINY, 16, 8.0, 0))
    assert costs.update_flops(TINY, 1, 8, 16, 8) == 3 * shared


def test_scoring_costs_what_prefill_and_decoding_do():
    """But for the first token's logits, which decoding has once a prompt and scoring once a completion."""
    generated = costs.prefill_flops(TINY, 1, 16) + costs.decode_flops(TINY, 1, 4, 16, 8)
    assert costs.group_flops(TINY, 1, 4, 16, 8) == generated + 2 * 32 * 256 * (4 - 1)


def test_a_decoding_step_reads_weights_and_what_is_cached():
    """bfloat16; 2 layers, keys and values of one head of 16, for a prompt of 10 and 3 half-grown completions of 4."""
    assert costs.decode_step_bytes(TINY, 1, 3, 10, 4, 2) == 2 * (MATRICES + 32 * 256 + 2 * 2 * 16 * (10 + 3 * 2))
