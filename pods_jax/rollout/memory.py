"""What the sampler's keys and values take, and how many blocks fit a budget."""

import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike

from pods_jax.errors import UserError
from pods_jax.models.decoder import ModelConfig


def kv_bytes(config: ModelConfig, dtype: DTypeLike, mesh: Mesh | None = None) -> int:
    """Bytes of one token's keys and values in all layers; of a mesh, a device's part: `tensor` splits the heads."""
    tensor, heads = 1 if mesh is None else mesh.shape.get("tensor", 1), config.num_key_value_heads
    heads //= tensor if heads % tensor == 0 else 1
    return 2 * config.num_hidden_layers * heads * config.head_dim * jnp.dtype(dtype).itemsize


def rows_that_fit(budget: int, token_bytes: int, prompt_length: int, max_new_tokens: int) -> int:
    """The largest block, in rollouts, that fits a budget in bytes.

    Raises:
      UserError: not even one rollout does.
    """
    rows = (budget // token_bytes - 2 * prompt_length) // max_new_tokens
    if rows < 1:
        needed = token_bytes * block_tokens(1, prompt_length, max_new_tokens)
        raise UserError(
            f"rollout.max_cache_bytes_per_device = {budget}: one rollout of {prompt_length} + {max_new_tokens} tokens "
            f"takes {needed} bytes"
        )
    return rows


def block_tokens(size: int, prompt_length: int, max_new_tokens: int) -> int:
    """Tokens whose keys and values a block of `size` rollouts holds at full length.

    The prompt counts twice: as it is computed, once for all its blocks, and as the block reads it.
    """
    return size * max_new_tokens + 2 * prompt_length
