"""Drawing tokens: repetition penalty, top-k, top-p, min-p, and an inverse-CDF draw from one uniform number a token."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, Key

# ---------------------------------------------------------------- a draw


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Options of the draw, the same for all rollouts; see `pods_jax.rollout.sampler.generate`."""

    greedy: bool
    top_k: int = 0
    top_p: float = 1.0
    eos_ids: tuple[int, ...] = ()
    pad_id: int = 0
    absent_ids: tuple[range, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def penalises(self) -> bool:
        """Whether the draw depends on the tokens that were seen."""
        return self.repetition_penalty != 1.0

    @property
    def reshapes(self) -> bool:
        """Whether tokens are drawn from another distribution than the policy's at the sampling temperature."""
        return not self.greedy and (self.penalises or self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0)


class Drawn(NamedTuple):
    """The next token of every row.

    Attributes:
      logprobs: over the whole vocabulary.
      drawn_logprobs: in the distribution that the token was drawn from; None where the drawing reshapes nothing.
    """

    tokens: Int[Array, " R"]
    logprobs: Float[Array, " R"]
    drawn_logprobs: Float[Array, " R"] | None


def choose(
    logits: Float[Array, "R V"], uniforms: Float[Array, " R"], drawing: Drawing, seen: Bool[Array, "R V"] | None = None
) -> Drawn:
    """The next token of every row.

    Args:
      logits: divided by the temperature.
      seen: the tokens of each row's prompt and completion, for the repetition penalty.
    """
    present = logits if seen is None else penalised(logits, seen, drawing.repetition_penalty)
    present = without(present, drawing.absent_ids)
    if drawing.greedy:
        tokens = jnp.argmax(present, -1).astype(jnp.int32)
    else:
        present = restrict(present, drawing.top_k, drawing.top_p, drawing.min_p)
        tokens = inverse_cdf(present, uniforms)
    return Drawn(tokens, _logprobs(logits, tokens), _logprobs(present, tokens) if drawing.reshapes else None)


def _logprobs(logits: Float[Array, "R V"], tokens: Int[Array, " R"]) -> Float[Array, " R"]:
    return jnp.take_along_axis(logits, tokens[:, None], -1)[:, 0] - jax.nn.logsumexp(logits, -1)


# ---------------------------------------------------------------- the distribution


def without(logits: Float[Array, "R V"], absent_ids: Sequence[range]) -> Float[Array, "R V"]:
    """Logits with these ids at -inf."""
    if not absent_ids:
        return logits
    absent = np.zeros(logits.shape[-1], bool)
    for ids in absent_ids:
        absent[ids.start : ids.stop] = True
    return jnp.where(absent, -jnp.inf, logits)


def penalised(logits: Float[Array, "R V"], seen: Bool[Array, "R V"], penalty: float) -> Float[Array, "R V"]:
    """Logits of seen tokens divided by the penalty where positive, multiplied by it where negative.

    Keskar et al. 2019 (arXiv 1909.05858), as transformers and vLLM have it. It commutes with the temperature.
    """
    return jnp.where(seen, jnp.where(logits < 0, logits * penalty, logits / penalty), logits)


def seen_tokens(tokens: Int[Array, "Q S"], lengths: Int[Array, " Q"], vocab_size: int) -> Bool[Array, "Q V"]:
    """The tokens that are among the first `lengths` of each row."""
    outside = vocab_size
    ids = jnp.where(jnp.arange(tokens.shape[1]) < lengths[:, None], tokens, outside)
    return marked(jnp.zeros((len(tokens), vocab_size), bool), ids)


def marked(seen: Bool[Array, "R V"], tokens: Int[Array, "R k"]) -> Bool[Array, "R V"]:
    """The tokens seen so far and these; ids outside of the vocabulary are left out."""
    return jax.vmap(lambda row, ids: row.at[ids].set(True, mode="drop"))(seen, tokens)


def restrict(logits: Float[Array, "R V"], top_k: int, top_p: float, min_p: float = 0.0) -> Float[Array, "R V"]:
    """Logits with everything outside of top-k, top-p and min-p at -inf; 0, 1.0 and 0.0 switch them off.

    As in transformers: the top-k tokens; of these the nucleus, which is the smallest set of most probable tokens whose
    mass reaches top_p; of these the tokens that are at least min_p times as probable as the most probable one. Tokens
    that tie with the last one kept are kept. Nothing is sorted: each bound is bisected (see `_floor`).
    """
    if not (top_k or top_p < 1.0 or min_p):
        return logits
    order = _ordered(logits)
    masses = jnp.exp(logits - logits.max(-1, keepdims=True))
    kept = masses >= min_p
    if top_k:
        in_top = order >= _floor(order, jnp.ones_like(order), jnp.full(len(order), top_k))
        kept &= in_top
        masses = jnp.where(in_top, masses, 0.0)
    if top_p < 1.0:
        kept &= order >= _floor(order, masses, top_p * masses.sum(-1))
    return jnp.where(kept, logits, -jnp.inf)


def _ordered(x: Float[Array, "R V"]) -> Int[Array, "R V"]:
    """Integers in the order of the floats."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    return jnp.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # sign and magnitude: -0.0 is 0.0


def _floor(order: Int[Array, "R V"], weights: Array, limit: Array) -> Int[Array, "R 1"]:
    """The least integer such that the weights of all members above it sum to less than the limit.

    Thirty-two passes over a row find it, in which nothing is moved; a sort of V members takes log(V)^2 / 2 on a TPU.
    """

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, rounded down: the sum may not fit
        enough = jnp.where(order > middle[:, None], weights, 0).sum(-1) < limit
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    high = order.max(-1)
    low = jnp.full_like(high, jnp.iinfo(jnp.int32).min)
    return jax.lax.fori_loop(0, 32, halve, (low, high))[1][:, None]


# ---------------------------------------------------------------- randomness


def rollout_uniforms(
    key: Key[Array, ""], prompt_ids: Integer[Array, " B"], samples: Int[Array, "B g"], length: int
) -> Float[Array, "B g T"]:
    """One uniform in (0, 1) a token, from `fold_in(fold_in(key, prompt_id), sample)` and the token's index only.

    So a rollout's randomness does not depend on the batch, the padding, or how many tokens are asked for. The numbers
    lie in the middle of 2^23 equal steps: 0 itself would give the first token a share, however improbable it is.
    """

    def row(prompt_id, sample):
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, prompt_id), sample), (length,))

    return jax.vmap(jax.vmap(row, (None, 0)))(prompt_ids, samples) + 2**-24


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
