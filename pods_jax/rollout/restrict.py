"""Top-k, top-p and min-p, exactly, without a sort of the vocabulary: their bounds are bisected."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pods_jax.rollout import strips


def restrict(logits: Float[Array, "R V"], top_k: int, top_p: float, min_p: float = 0.0) -> Float[Array, "R V"]:
    """Logits with everything outside of top-k, top-p and min-p at -inf; 0, 1.0 and 0.0 switch them off.

    As in transformers: the top-k tokens; of these the nucleus, which is the smallest set of most probable tokens whose
    mass reaches top_p; of these the tokens that are at least min_p times as probable as the most probable one. Tokens
    that tie with the last one kept are kept.
    """
    if not (top_k or top_p < 1.0 or min_p):
        return logits
    least = jnp.full((len(logits), 1), _LEAST)
    if top_k:
        least = _kth_largest(logits, top_k)
    if top_p < 1.0:
        least = _nucleus_floor(logits, least, top_k, top_p)
    kept = (_ordered(logits) >= least) & (_masses(logits, _top(logits)) >= min_p)
    return jnp.where(kept, logits, -jnp.inf)


def _top(logits: Float[Array, "R V"]) -> Float[Array, "R 1"]:
    return logits.max(-1, keepdims=True)


def _masses(logits: Float[Array, "R K"], top: Float[Array, "R 1"]) -> Float[Array, "R K"]:
    return jnp.exp(logits - top)


def _candidates(logits: Float[Array, "R V"], k: int) -> Float[Array, "R K"]:
    """Tokens with the k largest of each row, and all that lie above the k-th: those of the k strips of largest maxima.

    All tokens, where these are half of them or more.
    """
    if 2 * k * strips.STRIP >= logits.shape[-1]:
        return logits
    return strips.taken(logits, jax.lax.top_k(strips.maxima(logits), k)[1])


def _kth_largest(logits: Float[Array, "R V"], k: int) -> Int[Array, "R 1"]:
    """The order of the k-th largest logit."""
    candidates = _candidates(logits, k)
    return _floor(candidates, jnp.ones_like(candidates), jnp.full((len(logits), 1), float(k)))


def _nucleus_floor(
    logits: Float[Array, "R V"], least: Int[Array, "R 1"], top_k: int, top_p: float
) -> Int[Array, "R 1"]:
    """The order of the nucleus's least logit, among the tokens whose order is no less than `least`.

    Without top-k all tokens are looked at: at temperature 1 a nucleus is often spread over most strips.
    """
    top = _top(logits)

    def masses(among: Float[Array, "R K"]) -> Float[Array, "R K"]:
        return jnp.where(_ordered(among) >= least, _masses(among, top), 0.0)

    limit = top_p * masses(logits).sum(-1, keepdims=True)
    candidates = _candidates(logits, top_k) if top_k else logits
    return _floor(candidates, masses(candidates), limit)


# ---------------------------------------------------------------- a bisection


def _floor(x: Float[Array, "R K"], weights: Float[Array, "R K"], limit: Float[Array, "R 1"]) -> Int[Array, "R 1"]:
    """The least order such that the weights of all members above it sum to less than the limit.

    Thirty-two passes over a row find it, in which nothing is moved; a sort of K members takes log(K)^2 / 2 on a TPU.
    """
    order = _ordered(x)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, rounded down: the sum may not fit
        enough = jnp.where(order > middle, weights, 0).sum(-1, keepdims=True) < limit
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    high = order.max(-1, keepdims=True)
    return jax.lax.fori_loop(0, 32, halve, (jnp.full_like(high, _LEAST), high))[1]


_LEAST = -0x7F800000
"""The order of -inf."""


def _ordered(x: Float[Array, "..."]) -> Int[Array, "..."]:
    """Integers in the order of the floats."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    return jnp.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # sign and magnitude: -0.0 is 0.0
