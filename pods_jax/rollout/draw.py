"""Drawing tokens: repetition penalty, top-k, top-p, min-p, and an inverse-CDF draw from one uniform number a token."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from pods_jax.rollout import strips
from pods_jax.rollout.restrict import restrict

# ---------------------------------------------------------------- a draw


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Options of the draw, the same for all rollouts; see `pods_jax.rollout.sampler.generate`.

    Attributes:
      parts: equal parts of the rows, each of which is on a device of its own.
    """

    greedy: bool
    top_k: int = 0
    top_p: float = 1.0
    eos_ids: tuple[int, ...] = ()
    pad_id: int = 0
    absent_ids: tuple[range, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    parts: int = 1

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
    by_part = jax.tree.map(lambda x: x.reshape(drawing.parts, -1, *x.shape[1:]), (logits, uniforms, seen))
    drawn = jax.vmap(functools.partial(_choose, drawing))(*by_part)
    return jax.tree.map(jnp.ravel, drawn)


def _choose(
    drawing: Drawing, logits: Float[Array, "r V"], uniforms: Float[Array, " r"], seen: Bool[Array, "r V"] | None
) -> Drawn:
    """`choose` on the rows of one device."""
    present = logits if seen is None else penalised(logits, seen, drawing.repetition_penalty)
    present = without(present, drawing.absent_ids)
    if drawing.greedy:
        tokens = jnp.argmax(present, -1).astype(jnp.int32)
    else:
        present = restrict(present, drawing.top_k, drawing.top_p, drawing.min_p)
        tokens = inverse_cdf(present, uniforms)
    return Drawn(tokens, _logprobs(logits, tokens), _logprobs(present, tokens) if drawing.reshapes else None)


def _logprobs(logits: Float[Array, "R V"], tokens: Int[Array, " R"]) -> Float[Array, " R"]:
    top = logits.max(-1)
    total = strips.masses(logits, top).sum(-1)  # the compiler shares it with the draw's
    return jnp.take_along_axis(logits, tokens[:, None], -1)[:, 0] - top - jnp.log(total)


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

    In two levels, a strip of tokens and then the token within it, so that no cumulative sum is over all V.
    """
    top = logits.max(-1)
    masses = strips.masses(logits, top)
    strip, target = _first_above(masses, uniforms * masses.sum(-1))
    own = strips.taken(logits, strip[:, None])
    token, _ = _first_above(jnp.exp(own - top[:, None]), target)
    return (strip * strips.STRIP + token).astype(jnp.int32)


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
