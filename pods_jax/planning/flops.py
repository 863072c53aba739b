"""How much arithmetic a step is: the matrix products of the programs as they are written, in floating-point operations.

A product of [a, b] and [b, c] is 2 a b c. Padding counts, and so does the half of an attention score matrix that the
causal mask throws away: both are computed. XLA's own count is of no use here, as it has the body of a loop once.

Shapes: P prompts of S tokens, n (or m) rollouts of T tokens each; numbers are over all devices.
"""

import math

from pods_jax.config.schema import LoraConfig
from pods_jax.models.decoder import ModelConfig, layer_weights
from pods_jax.models.lora import MODULES


def matrix_flops(c: ModelConfig, tokens: int) -> int:
    """Tokens through the projections and MLPs of all layers: 2 x their entries, for each token."""
    entries = sum(math.prod(w.shape) for w in layer_weights(c).values() if len(w.shape) == 2)
    return 2 * c.num_hidden_layers * entries * tokens


def attention_flops(c: ModelConfig, queries: int, keys: int) -> int:
    """Scores and weighted sums, 2 x 2 H h for each pair of query and key, in all layers."""
    return 4 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * queries * keys


def head_flops(c: ModelConfig, tokens: int) -> int:
    """Tokens projected onto the vocabulary."""
    return 2 * c.hidden_size * c.vocab_size * tokens


def adapter_flops(c: ModelConfig, lora: LoraConfig, tokens: int) -> int:
    """Tokens through the adapters of all layers: 2 r (in + out) for each matrix and token."""
    weights = layer_weights(c)
    sizes = (sum(weights[MODULES[module]].shape) for module in lora.target_modules)
    return 2 * c.num_hidden_layers * lora.rank * sum(sizes) * tokens


def prefill_flops(c: ModelConfig, P: int, S: int) -> int:
    """Every prompt once; the head is not needed but for the last token, which `decode_flops` has."""
    return matrix_flops(c, P * S) + attention_flops(c, P * S, S)


def decode_flops(c: ModelConfig, rollouts: int, S: int, T: int, cached: int) -> int:
    """T tokens of every rollout, if none ends early; the first one needs no layer, as prefill went through them.

    Each query meets the prompt and the whole cache, be it filled or not; cached: the cache's length, summed over the
    tokens that go through the layers.
    """
    steps = max(T - 1, 0)
    layers = steps * matrix_flops(c, rollouts) + attention_flops(c, rollouts, steps * S + cached)
    return layers + T * head_flops(c, rollouts)


def scoring_flops(c: ModelConfig, P: int, m: int, S: int, T: int, lora: LoraConfig) -> tuple[int, int, int]:
    """A forward pass over P groups of m, each prompt once: of matrices, of attention (and adapters), of the head."""
    tokens = P * S + P * m * T
    attention = attention_flops(c, P * S, S) + attention_flops(c, P * m * T, S + T)
    adapters = adapter_flops(c, lora, tokens) if lora.rank else 0
    return matrix_flops(c, tokens), attention + adapters, head_flops(c, P * m * T)


def update_flops(c: ModelConfig, P: int, m: int, S: int, T: int, lora: LoraConfig, remat: bool) -> int:
    """Forward and backward passes over P groups of m.

    A product's backward pass is two products of its size, or one where its matrix is frozen (under LoRA). With remat
    the layers are computed once more; the head always is, as its logits are never kept.
    """
    matrices, rest, head = scoring_flops(c, P, m, S, T, lora)
    weight_gradient = 0 if lora.rank else 1
    return (2 + weight_gradient + remat) * matrices + (3 + remat) * rest + (3 + weight_gradient) * head
