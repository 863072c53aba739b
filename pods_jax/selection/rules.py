"""Selection rules: pure functions on one group, vmapped over groups by `select`.

A rule gets the group's rewards [n], the static number m to keep, a key for ties, and which rollouts are valid [n]; it
returns m indices into the group. Invalid rollouts (failed verification) are chosen only when fewer than m are valid.
"""

from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from pods_jax.registry import Registry


@runtime_checkable
class SelectionRule(Protocol):
    def __call__(
        self, rewards: Float[Array, " n"], num_kept: int, key: Key[Array, ""], valid: Bool[Array, " n"], **aux: Array
    ) -> Int[Array, " m"]: ...


RULES: Registry[SelectionRule] = Registry("selection rule")


def select(
    rule: str,
    rewards: Float[Array, "P n"],
    num_kept: int,
    key: Key[Array, ""],
    *,
    valid: Bool[Array, "P n"] | None = None,
    **aux: Array,
) -> Int[Array, "P m"]:
    """Indices of the rollouts each group keeps, under the named rule.

    Args:
      rule: a name in `RULES`.
      rewards: one reward a rollout; entries that are not finite count as invalid.
      num_kept: m, static, 1 <= m <= n.
      key: decides ties; group p uses `fold_in(key, p)`.
      valid: rollouts that may be kept (default: all).
      aux: further per-rollout arrays [P, n] that a rule asks for by name.

    Raises:
      UserError: the rule is unknown.
      ValueError: num_kept is out of range.
    """
    num_groups, n = rewards.shape
    if not 1 <= num_kept <= n:
        raise ValueError(f"num_kept must lie in 1..{n}, got {num_kept}")
    finite = jnp.isfinite(rewards)
    valid = finite if valid is None else valid & finite
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_groups))
    pick = RULES[rule]
    return jax.vmap(lambda r, k, v, a: pick(r, num_kept, k, v, **a))(jnp.where(valid, rewards, 0.0), keys, valid, aux)


def descending(scores: Float[Array, " n"], key: Key[Array, ""], valid: Bool[Array, " n"]) -> Int[Array, " n"]:
    """Indices by falling score, ties in random order, invalid entries last."""
    return jnp.lexsort((jax.random.uniform(key, scores.shape), -scores, ~valid))


@RULES.register("all")
def keep_all(rewards, num_kept, key, valid):
    """The first m valid rollouts in order of generation; plain GRPO is m = n."""
    return jnp.argsort(~valid, stable=True)[:num_kept]


@RULES.register("max_reward")
def max_reward(rewards, num_kept, key, valid):
    """The m highest rewards."""
    return descending(rewards, key, valid)[:num_kept]


@RULES.register("random")
def random(rewards, num_kept, key, valid):
    """m rollouts drawn uniformly without replacement."""
    return descending(jnp.zeros_like(rewards), key, valid)[:num_kept]


@RULES.register("percentile")
def percentile(rewards, num_kept, key, valid):
    """The rollouts at the quantiles 0.5/m, 1.5/m, ..., (m - 0.5)/m of the reward (Xu et al. 2025)."""
    order = descending(rewards, key, valid)
    num_valid = jnp.maximum(valid.sum(), num_kept)
    ranks = (2 * jnp.arange(num_kept) + 1) * num_valid // (2 * num_kept)
    return order[ranks]


@RULES.register("max_variance")
def max_variance(rewards, num_kept, key, valid):
    """The m rollouts whose rewards have maximal variance (PODS; Xu et al. 2025, Lemma 3.1 and Algorithm 2).

    A maximiser is always the k highest and m - k lowest for some k in 0..m: sort once, then scan every k with prefix
    sums, O(n log n). Rewards are first mapped to [-1/2, 1/2], so that a large common offset or a tiny scale costs no
    precision. Among k of equal variance the smallest wins: with binary rewards and odd m, floor(m/2) correct ones are
    kept, as in the authors' code; m = 1, where every variance is 0, keeps a lowest reward.
    """
    order = descending(rewards, key, valid)
    num_valid = jnp.maximum(valid.sum(), num_kept)
    k = jnp.arange(num_kept + 1)
    sums, squares = (jnp.concatenate([jnp.zeros(1), jnp.cumsum(x)]) for x in _centred_powers(rewards, valid, order))

    def ends(prefix):  # totals over the k highest and the m - k lowest, for every k
        return prefix[k] + prefix[num_valid] - prefix[num_valid - (num_kept - k)]

    variance = ends(squares) / num_kept - jnp.square(ends(sums) / num_kept)
    best = jnp.argmax(variance > variance.max() - _TIE_TOLERANCE)
    slot = jnp.arange(num_kept)
    return order[jnp.where(slot < best, slot, num_valid - num_kept + slot)]


_TIE_TOLERANCE = 1e-6  # variances lie in [0, 1/4]; prefix sums of n <= 1024 terms err by less


def _centred_powers(rewards, valid, order):
    """The sorted rewards mapped to [-1/2, 1/2], and their squares."""
    low = jnp.where(valid, rewards, jnp.inf).min()
    spread = jnp.where(valid, rewards, -jnp.inf).max() - low
    unit = jnp.where(spread > 0, (rewards - low) / jnp.where(spread > 0, spread, 1.0) - 0.5, 0.0)
    unit = jnp.where(valid, unit, 0.0)[order]
    return unit, jnp.square(unit)
