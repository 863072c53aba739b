"""Drawing tokens: temperature, top-k, top-p, and an inverse-CDF draw from one uniform number a token."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, Key


def rollout_uniforms(
    key: Key[Array, ""], prompt_ids: Integer[Array, " B"], samples: Int[Array, "B g"], length: int
) -> Float[Array, "B g T"]:
    """One uniform in [0, 1) a token, from `fold_in(fold_in(key, prompt_id), sample)` and the token's index only.

    So a rollout's randomness does not depend on the batch, the padding, or how many tokens are asked for.
    """

    def row(prompt_id, sample):
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, prompt_id), sample), (length,))

    return jax.vmap(jax.vmap(row, (None, 0)))(prompt_ids, samples)


def without(logits: Float[Array, "R V"], absent_ids: Sequence[range]) -> Float[Array, "R V"]:
    """Logits with these ids at -inf."""
    if not absent_ids:
        return logits
    absent = np.zeros(logits.shape[-1], bool)
    for ids in absent_ids:
        absent[ids.start : ids.stop] = True
    return jnp.where(absent, -jnp.inf, logits)


def restrict(logits: Float[Array, "R V"], top_k: int, top_p: float) -> Float[Array, "R V"]:
    """Logits with everything outside the top-k tokens and the top-p nucleus at -inf; 0 and 1.0 switch them off.

    As in transformers, top-k first, then the nucleus of what is left: the smallest set of most probable tokens whose
    mass reaches top_p. Tokens that tie with the last one kept are kept.
    """
    if top_k:
        floor = jax.lax.top_k(logits, min(top_k, logits.shape[-1]))[0][:, -1:]
        logits = jnp.where(logits < floor, -jnp.inf, logits)
    if top_p < 1.0:
        ordered = -jnp.sort(-logits, axis=-1)
        before = jnp.cumsum(jax.nn.softmax(ordered), -1) - jax.nn.softmax(ordered)
        floor = jnp.where(before < top_p, ordered, jnp.inf).min(-1, keepdims=True)
        logits = jnp.where(logits < floor, -jnp.inf, logits)
    return logits


def inverse_cdf(logits: Float[Array, "R V"], uniforms: Float[Array, " R"]) -> Int[Array, " R"]:
    """The token at which the cumulative probability first exceeds the uniform; never one of probability 0.

    In two levels, a block of tokens and then the token within it, so that no cumulative sum is over all V.
    """
    R, V = logits.shape
    logits = jnp.pad(logits, ((0, 0), (0, -V % BLOCK)), constant_values=-jnp.inf).reshape(R, -1, BLOCK)
    top = logits.max((1, 2))
    masses = jnp.exp(logits - top[:, None, None]).sum(-1)
    block, target = _first_above(masses, uniforms * masses.sum(-1))
    own = jnp.take_along_axis(logits, block[:, None, None], 1)[:, 0]
    token, _ = _first_above(jnp.exp(own - top[:, None]), target)
    return (block * BLOCK + token).astype(jnp.int32)


BLOCK = 128
"""Tokens in a block of the draw."""


def _first_above(
    masses: Float[Array, "R k"], target: Float[Array, " R"]
) -> tuple[Int[Array, " R"], Float[Array, " R"]]:
    """The first member of positive mass whose cumulative mass exceeds the target, and its share of the target.

    XLA's parallel sum is neither quite monotone nor quite flat over zeros, hence the mask.
    """
    cdf = jnp.where(masses > 0, jnp.cumsum(masses, -1), 0.0)
    target = jnp.minimum(target, jnp.nextafter(cdf.max(-1), 0.0))
    index = jnp.argmax(cdf > target[:, None], -1)
    before = jnp.take_along_axis(cdf - masses, index[:, None], -1)[:, 0]
    return index, jnp.maximum(target - before, 0.0)
