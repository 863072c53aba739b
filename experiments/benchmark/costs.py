"""FLOPs and bytes on paper. (XLA's own count takes the layers, which are scanned, for one.)"""

import math

from pods_jax.models.decoder import ModelConfig, layer_weights


def layer_matrix_size(c: ModelConfig) -> int:
    """Entries of one layer's matrices."""
    return sum(math.prod(w.shape) for w in layer_weights(c).values() if len(w.shape) == 2)


def forward_flops(c: ModelConfig, tokens: int, context: float, projected: int) -> float:
    """FLOPs of a forward pass, multiplications and additions counted apart.

    Args:
      tokens: that go through the layers.
      context: keys that the average one of them attends to.
      projected: positions that get logits.
    """
    matrices = 2 * c.num_hidden_layers * layer_matrix_size(c) * tokens
    attention = 4 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * context * tokens
    return matrices + attention + 2 * c.hidden_size * c.vocab_size * projected


def group_flops(c: ModelConfig, P: int, n: int, S: int, T: int) -> float:
    """FLOPs to score P groups of n completions of T tokens, the prompt of S tokens computed once a group."""
    prompts = forward_flops(c, P * S, S / 2, 0)
    return prompts + forward_flops(c, P * n * (T - 1), S + T / 2, P * n * T)


def update_flops(c: ModelConfig, P: int, m: int, S: int, T: int) -> float:
    """FLOPs of an update: the backward pass costs two forward ones. What remat computes again does not count."""
    return 3 * group_flops(c, P, m, S, T)


def prefill_flops(c: ModelConfig, P: int, S: int) -> float:
    return forward_flops(c, P * S, S / 2, P)


def decode_flops(c: ModelConfig, P: int, n: int, S: int, T: int) -> float:
    """FLOPs of all decoding steps after the first token, which prefill gives."""
    return forward_flops(c, P * n * (T - 1), S + T / 2, P * n * (T - 1))


def decode_step_bytes(c: ModelConfig, P: int, n: int, S: int, T: int, itemsize: int) -> float:
    """Bytes that the average decoding step must read: all weights once, and the keys and values of what is there.

    A group's prompt is read once for its n completions. A tied embedding is read as the head.
    """
    weights = c.num_hidden_layers * layer_matrix_size(c) + c.hidden_size * c.vocab_size
    cached = 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * P * (S + n * T / 2)
    return itemsize * (weights + cached)
