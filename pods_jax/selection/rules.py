"""Selection rules: pure functions on one group, vmapped over groups by `select`.

A rule gets the group's rewards [n], the static number m to keep, a key for ties, and which rollouts are valid [n]; it
returns m indices into the group. Invalid rollouts (failed verification) are chosen only when fewer than m are valid.
A rule that needs more than rewards names it: each further parameter is a per-rollout array [n] that the caller of
`select` hands over under that name. The training loop has those of `PER_ROLLOUT`.
"""

import inspect
import numbers
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from pods_jax.doors import refuse_group_arrays, refuse_key
from pods_jax.errors import UserError
from pods_jax.fields import shown
from pods_jax.registry import Registry
from pods_jax.selection.ordering import descending


@runtime_checkable
class SelectionRule(Protocol):
    def __call__(
        self, rewards: Float[Array, " n"], num_kept: int, key: Key[Array, ""], valid: Bool[Array, " n"], **aux: Array
    ) -> Int[Array, " m"]: ...


RULES: Registry[SelectionRule] = Registry("selection rule")

PER_ROLLOUT = ("lengths", "entropies")
"""Arrays that the training loop hands to rules: lengths in tokens, the end-of-sequence token counted; and the mean of
-log-probability over a rollout's own tokens, a one-sample estimate of the policy's entropy."""


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
      aux: further per-rollout arrays [P, n]; the rule gets those that it names.

    Raises:
      UserError: the rule is unknown, names an array that is missing, or does not return m indices; an array has
        another shape than [P, n], the key is none, or num_kept is out of range.
    """
    refuse_group_arrays(rewards, {"valid": valid, **aux})
    refuse_key(key)
    num_groups, n = rewards.shape
    if not isinstance(num_kept, numbers.Integral) or not 1 <= num_kept <= n:
        raise UserError(f"num_kept must be an integer in 1..{n}, got {shown(num_kept)}")
    finite = jnp.isfinite(rewards)
    valid = finite if valid is None else valid & finite
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_groups))
    if missing := [name for name in needed(rule) if name not in aux]:
        raise UserError(f"selection rule '{rule}' needs {', '.join(missing)}: pass them to select as arrays [P, n]")

    def pick(rewards, key, valid, aux):
        return _checked(rule, RULES[rule](rewards, num_kept, key, valid, **aux), num_kept)

    named = {name: aux[name] for name in needed(rule)}
    return jax.vmap(pick)(jnp.where(valid, rewards, 0.0), keys, valid, named)


def needed(rule: str) -> list[str]:
    """The arrays that a rule names beyond the four that every rule gets."""
    _, _, _, _, *names = inspect.signature(RULES[rule]).parameters
    return names


def _checked(rule: str, indices: Array, num_kept: int) -> Int[Array, " m"]:
    if indices.shape != (num_kept,) or not jnp.issubdtype(indices.dtype, jnp.integer):
        given = f"{indices.dtype}{list(indices.shape)}"
        raise UserError(f"selection rule '{rule}' returned {given} for a group, expected {num_kept} indices")
    return indices


@RULES.register("all")
def keep_all(rewards, num_kept, key, valid):
    """The first m valid rollouts in order of generation; plain GRPO is m = n."""
    return jnp.argsort(~valid, stable=True)[:num_kept]


@RULES.register("max_reward")
def max_reward(rewards, num_kept, key, valid):
    """The m highest rewards."""
    return descending(rewards, key, valid)[:num_kept]


@RULES.register("min_reward")
def min_reward(rewards, num_kept, key, valid):
    """The m lowest rewards."""
    return descending(-rewards, key, valid)[:num_kept]


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


# ---------------------------------------------------------------- by other scores


@RULES.register("max_abs_advantage")
def max_abs_advantage(rewards, num_kept, key, valid):
    """The m largest |r - mean| of the whole group (CPPO; Lin et al. 2025, arXiv 2503.22342).

    The paper keeps the whole group's advantages: `objective.statistics = 'group'`.
    """
    mean = jnp.where(valid, rewards, 0.0).sum() / jnp.maximum(valid.sum(), 1)
    return descending(jnp.abs(rewards - mean), key, valid)[:num_kept]


@RULES.register("shortest")
def shortest(rewards, num_kept, key, valid, lengths):
    """The m shortest completions, right or wrong (GFPO; Shrivastava et al. 2025, arXiv 2508.09726)."""
    return descending(-lengths.astype(rewards.dtype), key, valid)[:num_kept]


@RULES.register("reward_per_token")
def reward_per_token(rewards, num_kept, key, valid, lengths):
    """The m highest r / length (GFPO's token efficiency; Shrivastava et al. 2025, arXiv 2508.09726)."""
    return descending(rewards / jnp.maximum(lengths, 1), key, valid)[:num_kept]


@RULES.register("entropy")
def entropy(rewards, num_kept, key, valid, entropies):
    """The m rollouts of highest mean token entropy; rewards play no part. No canonical source."""
    return descending(entropies, key, valid)[:num_kept]
