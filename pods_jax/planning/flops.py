"""Floating-point operations (FLOPs) of a training step, by formula, for plans, benchmarks and notebooks.

Only matrix products count: a product of [a, b] and [b, c] is 2 a b c. They are counted as the programs run them: with
padding, and with the scores that are computed and masked. XLA's own count is of no use here: it counts the body of a
loop once.

Shapes: P prompts of S tokens, n (or m) rollouts of T tokens each; results are sums over all devices.
"""

import math
from typing import NamedTuple

from pods_jax.buckets import ceil_div
from pods_jax.config.schema import LoraConfig
from pods_jax.models.attention import chunk_lengths
from pods_jax.models.decoder import ModelConfig, layer_weights
from pods_jax.models.lora import MODULES


def layer_matrix_entries(c: ModelConfig) -> int:
    """Number of entries in the matrices of one layer."""
    return sum(math.prod(w.shape) for w in layer_weights(c).values() if len(w.shape) == 2)


def matrix_flops(c: ModelConfig, tokens: int) -> int:
    """Projections and MLPs of all layers: 2 x their entries for each token."""
    return 2 * c.num_hidden_layers * layer_matrix_entries(c) * tokens


def attention_flops(c: ModelConfig, queries: int, keys: int) -> int:
    """Attention scores and weighted sums of all layers: 2 x 2 H h for each pair of a query and a key."""
    return 4 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * queries * keys


def sequence_flops(
    c: ModelConfig, rows: int, T: int, S: int, attention: str = "chunked", remat: bool = False
) -> tuple[int, int]:
    """Attention of rows of T tokens to S tokens before them and to themselves: forward, and backward.

    Whole score matrices have two products forward and four backward, which remat computes once more. In chunks (and in
    kernels, which are counted as these) scores above the diagonal are left out; the backward pass has five products,
    one of them the scores again, and remat keeps the output.
    """
    lengths = None if attention == "whole" else chunk_lengths(T, S)
    if lengths is None:
        forward = attention_flops(c, rows * T, S + T)
        return forward, (2 + remat) * forward
    own, prompt = lengths
    chunks = ceil_div(T, own)
    forward = attention_flops(c, rows * chunks * own, 1) * (2 * prompt * ceil_div(S, prompt) + own * (chunks + 1)) // 2
    return forward, 5 * forward // 2


def head_flops(c: ModelConfig, tokens: int) -> int:
    """Projection of tokens onto the vocabulary."""
    return 2 * c.hidden_size * c.vocab_size * tokens


def adapter_flops(c: ModelConfig, lora: LoraConfig, tokens: int) -> int:
    """Adapters of all layers: 2 r (in + out) for each adapted matrix and token; 0 without LoRA."""
    weights = layer_weights(c)
    sizes = sum(sum(weights[MODULES[module]].shape) for module in lora.target_modules)
    return 2 * c.num_hidden_layers * lora.rank * sizes * tokens


# ---------------------------------------------------------------- sampling


def prefill_flops(c: ModelConfig, P: int, S: int) -> int:
    """Every prompt through the layers once. The head is in `decode_flops`, which has the first token."""
    return matrix_flops(c, P * S) + sequence_flops(c, P, S, 0)[0]


def decode_flops(c: ModelConfig, rollouts: int, S: int, T: int, cached: int) -> int:
    """T tokens of every rollout, if none ends early.

    The first token needs only the head, as prefill went through the layers for it. Every later one meets the prompt
    and the whole cache, whether filled or not.

    Args:
      cached: the length of the cache, summed over the tokens that go through the layers.
    """
    steps = max(T - 1, 0)
    layers = steps * matrix_flops(c, rollouts) + attention_flops(c, rollouts, steps * S + cached)
    return layers + T * head_flops(c, rollouts)


def token_flops(c: ModelConfig, rollouts: int) -> int:
    """A token of every rollout through the layers and the head, without attention."""
    return matrix_flops(c, rollouts) + head_flops(c, rollouts)


# ---------------------------------------------------------------- scoring and update


class PassFlops(NamedTuple):
    """Parts of a forward pass, which cost a backward pass differently much, and the attention of the backward pass."""

    matrices: int
    adapters: int
    head: int
    attention: int
    attention_backward: int

    @property
    def forward(self) -> int:
        """All parts of the forward pass."""
        return self.matrices + self.adapters + self.head + self.attention


def pass_flops(
    c: ModelConfig, P: int, m: int, S: int, T: int, lora: LoraConfig, attention: str = "chunked", remat: bool = False
) -> PassFlops:
    """A pass over P groups of m rollouts, each prompt computed once."""
    tokens = P * S + P * m * T
    prompts = sequence_flops(c, P, S, 0, attention, remat)
    completions = sequence_flops(c, P * m, T, S, attention, remat)
    return PassFlops(
        matrices=matrix_flops(c, tokens),
        adapters=adapter_flops(c, lora, tokens),
        head=head_flops(c, P * m * T),
        attention=prompts[0] + completions[0],
        attention_backward=prompts[1] + completions[1],
    )


def scoring_flops(c: ModelConfig, P: int, m: int, S: int, T: int, lora: LoraConfig, attention: str = "chunked") -> int:
    """A forward pass over P groups of m rollouts."""
    return pass_flops(c, P, m, S, T, lora, attention).forward


def update_flops(
    c: ModelConfig, P: int, m: int, S: int, T: int, lora: LoraConfig, remat: bool, attention: str = "chunked"
) -> int:
    """Forward and backward passes over P groups of m rollouts, with what is computed again.

    The backward pass of a product is two products of its size, or one where its matrix is frozen (under LoRA). With
    remat the layers are computed once more; the head always is, as its logits are never kept.
    """
    p = pass_flops(c, P, m, S, T, lora, attention, remat)
    weight_gradient = 0 if lora.rank else 1
    return (
        (2 + weight_gradient + remat) * p.matrices
        + (3 + remat) * p.adapters
        + p.attention
        + p.attention_backward
        + (3 + weight_gradient) * p.head
    )


def model_update_flops(c: ModelConfig, P: int, m: int, S: int, T: int) -> int:
    """Update of all weights without recomputation: three forward passes with whole score matrices.

    Over seconds and peak rate it is the model FLOPs utilisation (Chowdhery et al. 2022, arXiv 2204.02311, appendix B).
    """
    return 3 * scoring_flops(c, P, m, S, T, LoraConfig(), "whole")
