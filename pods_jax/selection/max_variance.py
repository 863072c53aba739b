"""The subset of maximal reward variance: the rule of PODS, and the same with its authors' order of ties."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pods_jax.selection.ordering import descending, ends
from pods_jax.selection.rules import RULES


@RULES.register("max_variance")
def max_variance(rewards, num_kept, key, valid):
    """The m rollouts whose rewards have maximal variance (PODS; Xu et al. 2025, Lemma 3.1 and Algorithm 2).

    A maximiser is always the k highest and m - k lowest for some k in 0..m: sort once, then scan every k with prefix
    sums, O(n log n). Among k of equal variance the smallest wins: with binary rewards and odd m, floor(m/2) correct
    ones are kept, as in the authors' code; m = 1, where every variance is 0, keeps a lowest reward.
    """
    order = descending(rewards, key, valid)
    best = jnp.argmax(_widest(rewards, num_kept, valid, order))
    return ends(order, best, num_kept, jnp.maximum(valid.sum(), num_kept))


@RULES.register("max_variance_authors")
def max_variance_authors(rewards, num_kept, key, valid):
    """`max_variance` with ties as in the single-device code of PODS, where nothing is drawn.

    Tied rollouts keep the order of generation, and among k of equal variance k = m wins, then the smallest: equal
    rewards, and m = 1, keep the first of the highest.
    """
    order = jnp.lexsort((-rewards, ~valid))
    best = jnp.argmax(jnp.roll(_widest(rewards, num_kept, valid, order), 1)) - 1  # tries m, 0, 1, ..., m - 1
    return ends(order, best % (num_kept + 1), num_kept, jnp.maximum(valid.sum(), num_kept))


def _widest(
    rewards: Float[Array, " n"], num_kept: int, valid: Bool[Array, " n"], order: Int[Array, " n"]
) -> Bool[Array, " k"]:
    """For which k in 0..m the k highest and m - k lowest have maximal variance."""
    unit = _unit_interval(rewards, valid)
    highest = unit[order[:num_kept]]
    lowest = unit[order[jnp.maximum(valid.sum(), num_kept) - 1 - jnp.arange(num_kept)]]
    mean_square = _totals(jnp.square(highest), jnp.square(lowest)) / num_kept
    variance = mean_square - jnp.square(_totals(highest, lowest) / num_kept)
    return variance > variance.max() - _TIE_TOLERANCE


_TIE_TOLERANCE = 1e-6  # variances lie in [0, 1/4]; prefix sums of m <= 1024 terms err by less


def _totals(highest: Float[Array, " m"], lowest: Float[Array, " m"]) -> Float[Array, " k"]:
    """The sum over the k first of one and the m - k first of the other, for k in 0..m."""
    high, low = (jnp.concatenate([jnp.zeros(1), jnp.cumsum(x)]) for x in (highest, lowest))
    return high + low[::-1]


def _unit_interval(rewards: Float[Array, " n"], valid: Bool[Array, " n"]) -> Float[Array, " n"]:
    """The rewards mapped to [-1/2, 1/2], so that no offset and no scale costs precision; 0 where invalid or equal."""
    low = jnp.where(valid, rewards, jnp.inf).min()
    spread = jnp.where(valid, rewards, -jnp.inf).max() - low
    unit = (rewards - low) / jnp.where(spread > 0, spread, 1.0) - 0.5
    return jnp.where(valid & (spread > 0), unit, 0.0)
