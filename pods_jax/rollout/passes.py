"""Passes: which rollouts are decoded together, and how far, within a budget for keys and values.

A budget that holds all rollouts at their full length makes one pass. With less, passes go no further than a milestone,
..., T / 9, T / 3, T tokens, and hold as many rollouts as have room for so many. Those that did not end there are
gathered into fewer passes to the next milestone, which first compute again the keys and values of what is there, many
tokens at a time. So no pass has room for its longest rollout, or waits for it, before a third of its tokens are there.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pods_jax.buckets import bucket, ceil_div
from pods_jax.rollout.layout import Layout, block_size, block_tokens, layouts, rows_that_fit

BLOCK_LIMIT = 4
"""Rollouts in a block where decoding goes in chunks: so few that those which are done leave whole blocks empty."""

STRIDE = 3
"""Ratio of milestones: with 2 too much is computed again, with 4 too many wait (`experiments/benchmark.py passes`)."""

FIRST_CHUNKS = 2
"""Least number of chunks to a milestone."""

ENOUGH_ROLLOUTS = 512
"""Rollouts on a device beyond which a pass gains little, and its logits need memory that is in no budget."""


SCORES = 2**28
"""Attention scores on a device, of 4 bytes each, in the computation of what a pass had before: its largest arrays."""


class Pass(NamedTuple):
    """Rollouts that are decoded together, from token `start` to token `goal`."""

    layout: Layout
    start: int
    goal: int


@dataclasses.dataclass(frozen=True)
class Room:
    """The limits of passes.

    Attributes:
      limit: most rollouts in a block.
      prompt_length: S, a bucket.
      max_new_tokens, chunk_size: T, and the tokens after which finished rollouts are dropped.
      devices: parts into which blocks are split.
      tokens: whose keys and values a device may hold; None: no limit.
    """

    limit: int
    prompt_length: int
    max_new_tokens: int
    chunk_size: int
    devices: int
    tokens: int | None

    def passes(self, rollouts: Sequence[np.ndarray], start: int) -> list[Pass]:
        """Passes that take rollouts on from token `start` to the next milestone; to T if one pass holds them.

        Args:
          rollouts: of each prompt, the numbers of its rollouts, or none.
        """
        T = self.max_new_tokens
        size = block_size([len(numbers) for numbers in rollouts], self.limit)

        def to(goal: int, most: int | None) -> list[Pass]:
            return [Pass(layout, start, goal) for layout in layouts(rollouts, size, self.devices, most)]

        whole = to(T, self.blocks(size, T))
        goal = next(m for m in milestones(T, self.chunk_size) if m > start)
        return whole if len(whole) == 1 or goal == T else to(goal, self._blocks_before_end(size, goal))

    def blocks(self, size: int, num_tokens: int) -> int | None:
        """Blocks of a device, with `size` rollouts, that have room for so many tokens of each."""
        if self.tokens is None:
            return None
        return self.tokens // block_tokens(size, self.prompt_length, num_tokens)

    def capacity(self, num_tokens: int, goal: int) -> int:
        """Capacity of a cache for so many tokens of a rollout: a bucket of chunks, and no more than a pass's goal.

        The last token is never in the cache. It has room all the same: in multiples of 128 a TPU keeps the layout that
        decoding reads, and copies nothing.
        """
        chunks = bucket(ceil_div(num_tokens, self.chunk_size))
        return min(chunks * self.chunk_size, goal)

    def resumed(self, one: Pass) -> int:
        """Capacity of the cache with which a pass goes on: for one chunk more than it has."""
        return self.capacity(one.start + self.chunk_size, one.goal)

    def width(self, one: Pass, num_heads: int) -> int:
        """Tokens of each rollout that are computed again at a time: a chunk, or a divisor of one with fewer scores."""
        keys = self.prompt_length + self.resumed(one)
        scores = one.layout.rows.size // self.devices * num_heads * keys
        fitting = (w for w in range(self.chunk_size, 1, -1) if self.chunk_size % w == 0 and w * scores <= SCORES)
        return next(fitting, 1)

    def _blocks_before_end(self, size: int, num_tokens: int) -> int:
        """No more than are enough, but for those that fit at full length."""
        enough = max(ENOUGH_ROLLOUTS // size, self.blocks(size, self.max_new_tokens))
        return min(enough, self.blocks(size, num_tokens))


def milestones(max_new_tokens: int, chunk_size: int) -> list[int]:
    """Numbers of tokens to which passes go: T, and a third, a ninth, ... of it in whole chunks."""
    found = [max_new_tokens]
    chunks = ceil_div(max_new_tokens, chunk_size) // STRIDE
    while chunks >= FIRST_CHUNKS:
        found.insert(0, chunks * chunk_size)
        chunks //= STRIDE
    return found


def make_room(
    counts: Sequence[int], token_bytes: int, prompt_length: int, max_new_tokens: int, devices: int, chunk_size: int,
    max_cache_bytes_per_device: int | None,
) -> Room:  # fmt: skip
    """The limits of the passes of `generate`.

    Args:
      counts: rollouts of each prompt.
      token_bytes: see `kv_bytes`.
      prompt_length: of the longest prompt.

    Raises:
      UserError: the budget does not hold one rollout.
    """
    T = max_new_tokens
    S = bucket(prompt_length)
    limit = BLOCK_LIMIT if chunk_size < T else max(counts)
    tokens = None
    if max_cache_bytes_per_device is not None:
        limit = min(limit, rows_that_fit(max_cache_bytes_per_device, token_bytes, S, T))
        tokens = max_cache_bytes_per_device // token_bytes
    return Room(limit, S, T, min(chunk_size, T), devices, tokens)


def longest_passes(room: Room, counts: Sequence[int]) -> Iterator[Pass]:
    """All passes of a call in which no rollout ends before T tokens. counts: rollouts of each prompt."""
    rollouts = [np.arange(count) for count in counts]
    start = 0
    while start < room.max_new_tokens:
        found = room.passes(rollouts, start)
        yield from found
        start = found[0].goal
