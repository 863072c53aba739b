"""Statistics of a selection, for metrics."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class SelectionStatistics(NamedTuple):
    """Per group, over its valid rollouts; variances are the population's.

    Attributes:
      num_high: the kept rewards above the kept's mean: the k of `max_variance`.
      group_variance, kept_variance: of the rewards before and after.
      degenerate: the kept rewards are all equal, so that the group teaches nothing.
    """

    num_high: Int[Array, " P"]
    group_variance: Float[Array, " P"]
    kept_variance: Float[Array, " P"]
    degenerate: Bool[Array, " P"]


def selection_statistics(
    rewards: Float[Array, "P n"], indices: Int[Array, "P m"], valid: Bool[Array, "P n"] | None = None
) -> SelectionStatistics:
    """The statistics of the indices that `select` returned for these rewards and this `valid`."""
    valid = jnp.isfinite(rewards) if valid is None else valid & jnp.isfinite(rewards)
    kept, ok = (jnp.take_along_axis(x, indices, axis=1) for x in (rewards, valid))
    _, group_variance = _moments(rewards, valid)
    kept_centred, kept_variance = _moments(kept, ok)
    low = jnp.where(ok, kept, jnp.inf).min(1)
    high = jnp.where(ok, kept, -jnp.inf).max(1)
    return SelectionStatistics(
        num_high=(kept_centred > 0).sum(1),
        group_variance=group_variance,
        kept_variance=kept_variance,
        degenerate=low >= high,
    )


def _moments(values, valid):
    """Deviations from each row's mean, 0 where invalid or where all are equal; and their variance."""
    low = jnp.where(valid, values, jnp.inf).min(1, keepdims=True)
    count = jnp.maximum(valid.sum(1, keepdims=True), 1)
    shifted = jnp.where(valid, values - low, 0.0)
    centred = jnp.where(valid, shifted - shifted.sum(1, keepdims=True) / count, 0.0)
    return centred, jnp.square(centred).sum(1) / count[:, 0]
