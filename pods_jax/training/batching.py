"""Groups, of any number and any sizes, to the learner's batch: select, compare, lay out what is kept."""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pods_jax.config import Config, ObjectiveConfig
from pods_jax.errors import UserError
from pods_jax.learner import Batch
from pods_jax.objective import estimate_advantages
from pods_jax.records import Group
from pods_jax.rollout.buckets import bucket, pad_prompts
from pods_jax.selection import select, selection_statistics
from pods_jax.training.metrics import selection_metrics
from pods_jax.training.run import Metrics


class Kept(NamedTuple):
    """What of a group is trained on: k of its rollouts, by their rows in it, and their advantages [k].

    A rule that draws with replacement may keep a row more than once.
    """

    group: Group
    rows: np.ndarray
    advantages: np.ndarray


def select_groups(config: Config, groups: Sequence[Group], key: jax.Array) -> tuple[list[Kept], Metrics]:
    """m rollouts of every group under the selection rule, and how their rewards compare.

    A group that has fewer than m, or whose rule is "all", keeps all it has. Rewards that are not finite have no part in
    selection, statistics and update; nor has, with objective.mask_truncated_completions, a truncated completion in the
    update, though it does in the other two.

    Raises:
      UserError: the rule's indices are not those of rollouts.
    """
    n = bucket(max(len(g.rewards) for g in groups))
    rule, m = config.selection.rule, config.selection.num_kept
    rewards = _padded([g.rewards for g in groups], n, np.nan)
    lengths, truncated = (_padded([getattr(g, name) for g in groups], n, 0) for name in ("lengths", "truncated"))
    aux = {"lengths": lengths, "entropies": _padded([_entropies(g) for g in groups], n, 0)}
    chosen = _choose(rewards, key, aux, rule=rule, num_kept=n if rule == "all" else min(m, n), o=config.objective)
    rows, advantages, stats = jax.tree.map(lambda x: x[: len(groups)], jax.device_get(chosen))
    if rows.min() < 0 or rows.max() >= n:
        raise UserError(f"selection rule '{rule}' returned an index outside of a group: {rows.min()} to {rows.max()}")
    metrics = selection_metrics(groups, stats, np.take_along_axis(rewards[: len(groups)], rows, 1))
    usable = np.isfinite(rewards) & ~(truncated & config.objective.mask_truncated_completions)
    kept = []
    for group, row, values, ok in zip(groups, rows, advantages, usable, strict=False):  # usable has padding at its end
        kept.append(Kept(group, row[ok[row]], values[ok[row]]))
    return kept, metrics


@functools.partial(jax.jit, static_argnames=("rule", "num_kept", "o"))
def _choose(rewards, key, aux, *, rule: str, num_kept: int, o: ObjectiveConfig):
    """Kept indices [P, m], their advantages, and what was selected; padding has NaN for a reward."""
    indices = select(rule, rewards, num_kept, key, **aux)
    advantages = functools.partial(
        estimate_advantages, o.advantage_estimator, scale_rewards=o.scale_rewards, ddof=o.ddof,
        epsilon=o.advantage_epsilon,
    )  # fmt: skip

    def kept(x):
        return jnp.take_along_axis(x, indices, axis=1)

    if o.statistics == "kept":  # as PODS does (Xu et al. 2025, appendix A.3)
        chosen = advantages(kept(rewards), kept(aux["lengths"]))
    else:
        chosen = kept(advantages(rewards, aux["lengths"]))
    return indices, chosen, selection_statistics(rewards, indices)


def _padded(rows: Sequence[np.ndarray], n: int, fill: float | int) -> np.ndarray:
    """Ragged rows as an array [P, n]; P is a bucket, too."""
    out = np.full((bucket(len(rows)), n), fill, rows[0].dtype)
    for to, row in zip(out, rows, strict=False):
        to[: len(row)] = row
    return out


def _entropies(group: Group) -> np.ndarray:
    """The mean of -log-probability over each rollout's own tokens [n] (see `pods_jax.selection.rules`)."""
    own = np.arange(group.logprobs.shape[1]) < group.lengths[:, None]
    return -np.where(own, group.logprobs, 0.0).sum(1) / np.maximum(group.lengths, 1)


# ---------------------------------------------------------------- the batch


def make_batches(config: Config, kept: Sequence[Kept], devices: int) -> list[Batch]:
    """A batch for each optimizer step of a pass over the groups, consecutive ones together (see `make_batch`).

    There are objective.steps_per_generation, or as many as groups where these are fewer.
    """
    count = max(1, min(config.objective.steps_per_generation, len(kept)))
    ends = [round(i * len(kept) / count) for i in range(count + 1)]
    return [make_batch(config, kept[start:end], devices) for start, end in itertools.pairwise(ends)]


def make_batch(config: Config, kept: Sequence[Kept], devices: int) -> Batch:
    """The kept rollouts in equal blocks, each beside its prompt, as host arrays; padding has length 0.

    A block is a group's m kept rollouts, or as many of them as one micro-batch of a device holds; a larger group is cut
    into several, the shortest rollouts first, so that few blocks are as wide as the longest; a smaller one leaves a
    block's end empty. The number of blocks is what groups of m need that are an update's share of num_prompts, or more
    in few sizes; completions are trimmed to a bucket.
    """
    size = block_size(config)
    blocks = [block for k in kept for block in blocks_of(k, size)]
    count = num_blocks(config, len(blocks), devices)
    longest = max((int(b.group.lengths[b.rows].max()) for b in blocks), default=1)
    T = trimmed_length(longest, config.rollout.max_completion_length)
    prompts, prompt_lengths = pad_prompts(
        [b.group.request.prompt.tokens for b in blocks] + [(0,)] * (count - len(blocks))
    )
    batch = Batch(
        prompts=prompts[:count],
        prompt_lengths=prompt_lengths[:count],
        completions=np.zeros((count, size, T), np.int32),
        lengths=np.zeros((count, size), np.int32),
        advantages=np.zeros((count, size), np.float32),
        behaviour_logprobs=np.zeros((count, size, T), np.float32),
    )
    for i, (group, rows, advantages) in enumerate(blocks):
        own = i, slice(len(rows))
        batch.completions[own], batch.lengths[own] = group.tokens[rows, :T], group.lengths[rows]
        batch.advantages[own], batch.behaviour_logprobs[own] = advantages, group.logprobs[rows, :T]
    if config.objective.old_logprobs == "behaviour":
        return batch._replace(old_logprobs=batch.behaviour_logprobs)
    return batch


def blocks_of(kept: Kept, size: int) -> list[Kept]:
    """A group's kept rollouts, `size` at a time, in the order of `make_batch`."""
    group, rows, advantages = kept
    if len(rows) <= size:
        return [kept] * (len(rows) > 0)
    order = np.argsort(group.lengths[rows], kind="stable")
    parts = np.split(order, range(size, len(order), size))
    return [Kept(group, rows[part], advantages[part]) for part in parts]


def block_size(config: Config) -> int:
    """How many rollouts of a group share one copy of its prompt in the update."""
    m = config.selection.num_kept
    return min(m, config.optimizer.micro_batch_size_per_device or m)


def num_blocks(config: Config, needed: int, devices: int) -> int:
    """How many blocks a batch has that needs so many; a whole number of micro-batches on every device."""
    size, micro = block_size(config), config.optimizer.micro_batch_size_per_device
    usual = config.rollout.num_prompts // config.objective.steps_per_generation * config.selection.num_kept // size
    unit = devices * max(1, (micro or size) // size)
    return usual if needed <= usual else unit * bucket(-(-needed // unit))


def trimmed_length(longest: int, limit: int) -> int:
    """The padded completion length: a bucket, at least a quarter of the limit, so that few programs are compiled."""
    return min(limit, max(bucket(longest), -(-limit // 4)))
