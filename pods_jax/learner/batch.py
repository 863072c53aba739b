"""Kept rollouts, of any number and any groups, as the arrays of an update: fixed shapes, in few sizes."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from pods_jax.buckets import bucket, ceil_div, pad_prompts
from pods_jax.config.schema import Config
from pods_jax.groups import Group
from pods_jax.objective.losses import completion_mask

NO_ROWS = np.zeros(0, int)


class Batch(NamedTuple):
    """The kept rollouts of P groups, m each; a block of a larger group, with its prompt, passes for a group as well.

    Attributes:
      prompts: [P, S] right-padded token ids; prompt_lengths: [P].
      completions: [P, m, T] right-padded token ids; lengths: [P, m], 0 for a rollout that is left out of the loss.
      advantages: [P, m].
      behaviour_logprobs: [P, m, T] in the distribution that the tokens were drawn from, for corrections.
      loss_mask: [P, m, T] False for the tokens of observations, on which nothing is trained; None: there are none.
      old_logprobs: [P, m, T] under the policy that the ratio is taken against; None: the current one (ratio 1).
      ref_logprobs: [P, m, T] under the KL's reference; None without KL.
      policy_mask: [P, m, T] the tokens whose surrogate counts; None: all.
      versions: [P, m] the step whose policy generated each rollout; None: not known.
      left_out_lengths: [P, m] lengths of rollouts that are not in the batch and yet count as sequences of the loss, 0
        for padding; left_out_tokens: [P, m] the number of their tokens that count. None: there are none.
      full_logprobs: [P, m, T] the sampler's over the full distribution; None where tokens were drawn from that.
    """

    prompts: Int[Array, "P S"]
    prompt_lengths: Int[Array, " P"]
    completions: Int[Array, "P m T"]
    lengths: Int[Array, "P m"]
    advantages: Float[Array, "P m"]
    behaviour_logprobs: Float[Array, "P m T"]
    old_logprobs: Float[Array, "P m T"] | None = None
    ref_logprobs: Float[Array, "P m T"] | None = None
    policy_mask: Bool[Array, "P m T"] | None = None
    versions: Int[Array, "P m"] | None = None
    left_out_lengths: Int[Array, "P m"] | None = None
    left_out_tokens: Int[Array, "P m"] | None = None
    loss_mask: Bool[Array, "P m T"] | None = None
    full_logprobs: Float[Array, "P m T"] | None = None

    @property
    def own_mask(self) -> Bool[Array, "P m T"]:
        """The tokens that the policy sampled; none of rollouts that are left out."""
        mask = completion_mask(jnp.asarray(self.lengths), self.completions.shape[-1])
        return mask if self.loss_mask is None else mask & self.loss_mask

    @property
    def sampler_logprobs(self) -> Array | np.ndarray:
        """The sampler's log-probabilities [P, m, T] over the full distribution, to compare the learner's with."""
        return self.behaviour_logprobs if self.full_logprobs is None else self.full_logprobs


class Kept(NamedTuple):
    """The rollouts of a group that are trained on: their k rows in it, and their advantages [k].

    A rule that draws with replacement may keep a row more than once.

    Attributes:
      masked: rows that were kept and are masked whole: they count as sequences of the loss, without tokens.
      idle: True where the loss has no gradient from the rows: they count in its denominators, and are not computed.
    """

    group: Group
    rows: np.ndarray
    advantages: np.ndarray
    masked: np.ndarray = NO_ROWS
    idle: bool = False


def update_shares(config: Config, kept: Sequence[Kept]) -> list[Sequence[Kept]]:
    """The kept rollouts of each update in a pass over the groups, consecutive groups together.

    There are objective.steps_per_generation updates, or as many as groups where these are fewer.
    """
    count = max(1, min(config.objective.steps_per_generation, len(kept)))
    ends = [round(i * len(kept) / count) for i in range(count + 1)]
    return [kept[start:end] for start, end in itertools.pairwise(ends)]


def make_batch(config: Config, kept: Sequence[Kept], devices: int) -> Batch:
    """The kept rollouts in equal blocks, each beside its prompt, as host arrays; padding has length 0.

    A block is a group's m kept rollouts, or as many of them as one micro-batch of a device holds; a larger group is cut
    into several, the shortest rollouts first, so that few blocks are as wide as the longest; a smaller one leaves a
    block's end empty. The number of blocks is what groups of m need that are an update's share of num_prompts, or more
    in few sizes; completions are trimmed to a bucket.
    """
    size = block_size(config)
    blocks = [block for k in kept if not k.idle for block in blocks_of(k, size)]
    needed = sum(ceil_div(len(k.rows) + len(k.masked), size) for k in kept)  # idle ones too: shapes stay the same
    count = num_blocks(config, needed, devices)
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
        full_logprobs=np.zeros((count, size, T), np.float32) if _reshaped(kept) else None,
        versions=np.zeros((count, size), np.int32),
        left_out_lengths=_flat((count, size), [k.group.lengths[rows] for k in kept for rows in _left_out(k)]),
        left_out_tokens=_flat((count, size), [_counting_tokens(k) for k in kept]),
        loss_mask=np.zeros((count, size, T), bool) if any(k.group.loss_mask is not None for k in kept) else None,
    )
    for i, block in enumerate(blocks):
        _fill(batch, i, block)
    if config.objective.old_logprobs == "behaviour":
        return batch._replace(old_logprobs=batch.behaviour_logprobs)
    return batch


def _fill(batch: Batch, i: int, block: Kept) -> None:
    """Writes a block to row i of a batch of host arrays."""
    group, rows, advantages, *_ = block
    own = i, slice(len(rows))
    T = batch.completions.shape[-1]
    batch.completions[own] = group.tokens[rows, :T]
    batch.lengths[own] = group.lengths[rows]
    batch.advantages[own] = advantages
    batch.behaviour_logprobs[own] = group.behaviour_logprobs[rows, :T]
    if batch.full_logprobs is not None:
        batch.full_logprobs[own] = group.logprobs[rows, :T]
    batch.versions[own] = group.policy_versions[rows]
    if batch.loss_mask is not None:
        batch.loss_mask[own] = group.own_mask[rows, :T]


def _reshaped(kept: Sequence[Kept]) -> bool:
    """Whether the rollouts were drawn from another distribution than the full one."""
    return any(k.group.drawn_logprobs is not None for k in kept)


def _left_out(kept: Kept) -> list[np.ndarray]:
    """Rows that are not in the batch and count as sequences."""
    return [kept.rows, kept.masked] if kept.idle else [kept.masked]


def _counting_tokens(kept: Kept) -> np.ndarray:
    """The number of tokens that count, of each row of `_left_out`."""
    idle = kept.group.own_lengths[kept.rows] if kept.idle else NO_ROWS
    return np.concatenate([idle, np.zeros(len(kept.masked), int)])


def _flat(shape: tuple[int, int], rows: Sequence[np.ndarray]) -> np.ndarray:
    """The entries of all rows, one after the other, as an array of this shape; 0 behind them."""
    out = np.zeros(shape, np.int32)
    values = np.concatenate([NO_ROWS, *rows])
    out.reshape(-1)[: len(values)] = values
    return out


def blocks_of(kept: Kept, size: int) -> list[Kept]:
    """A group's kept rollouts, `size` at a time, in the order of `make_batch`."""
    group, rows, advantages, *_ = kept
    if len(rows) <= size:
        return [kept] * (len(rows) > 0)
    order = np.argsort(group.lengths[rows], kind="stable")
    parts = np.split(order, range(size, len(order), size))
    return [Kept(group, rows[part], advantages[part]) for part in parts]


def block_size(config: Config) -> int:
    """Rollouts of a group that share one copy of its prompt in the update."""
    m = config.selection.num_kept
    return min(m, config.optimizer.micro_batch_size_per_device or m)


def num_blocks(config: Config, needed: int, devices: int) -> int:
    """Blocks of a batch in which `needed` have rollouts; a whole number of micro-batches on every device."""
    size = block_size(config)
    micro = config.optimizer.micro_batch_size_per_device
    usual = config.rollout.num_prompts // config.objective.steps_per_generation * config.selection.num_kept // size
    unit = devices * max(1, (micro or size) // size)
    return usual if needed <= usual else unit * bucket(ceil_div(needed, unit))


def trimmed_length(longest: int, limit: int) -> int:
    """The padded completion length: a bucket, at least a quarter of the limit, so that few programs are compiled."""
    return min(limit, max(bucket(longest), ceil_div(limit, 4)))
