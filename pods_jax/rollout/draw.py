"""Drawing tokens: temperature, top-k, top-p, and an inverse-CDF draw from one uniform number a token."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, Key


def rollout_uniforms(
    key: Key[Array, ""], prompt_ids: Integer[Array, " B"], samples: Int[Array, "B g"], length: int
) -> Float[Array, "B g T"]:
    """One uniform in [0, 1) a token, from `fold_in(fold_in(key, prompt_id), sample)` and the token's index alone.

    So a rollout's randomness does not depend on the batch, the padding, or how many tokens are asked for.
    """

    def row(prompt_id, sample):
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, prompt_id), sample), (length,))

    return jax.vmap(jax.vmap(row, (None, 0)))(prompt_ids, samples)


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

    XLA's parallel sum is neither quite monotone nor quite flat over zeros, hence the mask.
    """
    mass = jnp.exp(logits - logits.max(-1, keepdims=True))
    cdf = jnp.where(mass > 0, jnp.cumsum(mass, -1), 0.0)
    total = cdf.max(-1)
    target = jnp.minimum(uniforms * total, jnp.nextafter(total, 0.0))
    return jnp.argmax(cdf > target[:, None], -1).astype(jnp.int32)
