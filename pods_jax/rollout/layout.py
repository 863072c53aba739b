"""The layout of rollouts for decoding: blocks of g rollouts of one prompt, so that unequal groups share one program."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Int, Shaped

from pods_jax.buckets import bucket, ceil_div
from pods_jax.errors import UserError
from pods_jax.models.decoder import ModelConfig


class Layout(NamedTuple):
    """Q prompts to prefill and B blocks of g rollouts to decode; each device has the same number of both.

    A block is on a device that has its prompt: a prompt is prefilled once on every device that decodes a part of its
    group. Blocks are in the order of their groups; padding is at the end of each device's share.

    Attributes:
      prompts: [Q] index of each prompt in the call; -1 is padding.
      owners: [devices, B / devices] each block's prompt among those of its device; None where block i is of prompt i.
      groups: [B] index of each block's prompt in the call; -1 is padding.
      rows: [B, g] number of each rollout in its group; -1 is padding.
    """

    prompts: np.ndarray
    owners: np.ndarray | None
    groups: np.ndarray
    rows: np.ndarray

    def put(self, values: Shaped[np.ndarray, "B g ..."], out: Shaped[np.ndarray, "P n ..."]) -> None:
        """Writes the values of all rollouts to their groups; what is of other rollouts stays."""
        real = self.rows >= 0
        out[np.broadcast_to(self.groups[:, None], real.shape)[real], self.rows[real]] = values[real]

    def get(self, values: Shaped[np.ndarray, "P n ..."]) -> Shaped[np.ndarray, "B g ..."]:
        """The values of all rollouts; padding has those of another."""
        return values[self.groups[:, None], self.rows]


def block_size(counts: Sequence[int], limit: int) -> int:
    """The cheapest g up to a limit, if a block costs as much as g + 1 rollouts; for equal counts n, it is n.

    It depends on the distinct counts, not on the number of prompts that have each: g is the same in every round.
    """
    distinct = set(counts)

    def cost(g: int) -> int:
        return sum(ceil_div(count, g) * (g + 1) for count in distinct)

    return min(range(min(max(distinct), limit), 0, -1), key=cost)


def layouts(rollouts: Sequence[np.ndarray], size: int, devices: int = 1, most: int | None = None) -> list[Layout]:
    """Blocks of `size` for every prompt's rollouts, in order, in layouts of at most `most` blocks a device.

    Args:
      rollouts: of each prompt, the numbers of its rollouts, or none.
    """
    needed = [ceil_div(len(numbers), size) for numbers in rollouts]
    groups = np.repeat(np.arange(len(needed)), needed)
    rows = np.concatenate([_padded(x, k * size).reshape(k, size) for x, k in zip(rollouts, needed, strict=True)])

    def fits(parts: int) -> bool:
        return most is None or bucket(ceil_div(len(groups), parts * devices)) <= most

    parts = next(filter(fits, itertools.count(1)))
    shares = zip(np.array_split(groups, parts), np.array_split(rows, parts), strict=True)
    return [_layout(*share, devices) for share in shares]


def _layout(groups: Int[np.ndarray, " N"], rows: Int[np.ndarray, "N g"], devices: int) -> Layout:
    """Spreads blocks over devices; the numbers of blocks and of prompts are buckets."""
    per_device = bucket(ceil_div(len(groups), devices))
    shares = [groups[d * per_device : (d + 1) * per_device] for d in range(devices)]
    held = [np.unique(share, return_inverse=True) for share in shares]
    num_prompts = bucket(max(len(prompts) for prompts, _ in held))
    one_each = len(np.unique(groups)) == len(groups)
    return Layout(
        prompts=np.concatenate([_padded(prompts, num_prompts) for prompts, _ in held]),
        owners=None if one_each else np.stack([_padded(owners, per_device, 0) for _, owners in held]),
        groups=_padded(groups, devices * per_device),
        rows=_padded(rows, devices * per_device),
    )


class Move(NamedTuple):
    """A move to fewer blocks: the new layout, and for each device the origins of its new blocks.

    Attributes:
      layout: with B' blocks.
      origins: [devices, B' / devices] an old block with the same prompt, counted from the device's first; padding is 0.
      rows: [devices, B' g / devices] the old rollout of each place, counted alike. Both None: all stay in place.
    """

    layout: Layout
    origins: np.ndarray | None
    rows: np.ndarray | None


def compacted(layout: Layout, live: Bool[np.ndarray, "B g"], devices: int) -> Move:
    """Only the live rollouts, each on its device; in as few blocks as hold them, where that is a smaller bucket."""
    g = layout.rows.shape[1]
    per_device = len(layout.groups) // devices
    parts = zip(np.split(layout.groups, devices), np.split(live, devices), strict=True)
    kept = [_packed(groups, alive) for groups, alive in parts]
    fewer = bucket(max(len(places) for places in kept))
    if fewer == per_device:
        return Move(layout._replace(rows=np.where(live, layout.rows, -1)), None, None)
    places = np.stack([_padded(p, fewer) for p in kept])
    flat = (places + np.arange(devices)[:, None, None] * per_device * g).reshape(-1, g)
    rows = np.where(places.reshape(-1, g) < 0, -1, layout.rows.ravel()[flat])
    groups = np.where(rows[:, 0] < 0, -1, layout.groups[flat[:, 0] // g])
    places = np.maximum(places, 0)
    return Move(layout._replace(groups=groups, rows=rows), places[:, :, 0] // g, places.reshape(devices, -1))


def _packed(groups: Int[np.ndarray, " b"], live: Bool[np.ndarray, "b g"]) -> Int[np.ndarray, "c g"]:
    """One device's new blocks: the place of each of their rollouts among the old blocks'; -1 is padding."""
    g = live.shape[1]
    places = np.flatnonzero(live)
    owner = groups[places // g]
    rank_in_group = np.arange(len(places)) - np.searchsorted(owner, owner)  # owners are in order
    column = rank_in_group % g
    block = np.cumsum(column == 0) - 1
    packed = np.full((int((column == 0).sum()), g), -1)
    packed[block, column] = places
    return packed


def _padded(x: np.ndarray, size: int, value: int = -1) -> np.ndarray:
    return np.pad(x, ((0, size - len(x)),) + ((0, 0),) * (x.ndim - 1), constant_values=value)


def take(x: Shaped[Array, "Q ..."], index: Int[Array, "devices k"]) -> Shaped[Array, "K ..."]:
    """x at the indices, which count from the first entry of each device's part of x; nothing leaves its device."""
    parts = x.reshape(len(index), -1, *x.shape[1:])
    return jax.vmap(lambda part, i: part[i])(parts, index).reshape(-1, *x.shape[1:])


# ---------------------------------------------------------------- memory


def kv_bytes(config: ModelConfig, dtype: DTypeLike, mesh: Mesh | None = None) -> int:
    """Bytes of one token's keys and values in all layers; of a mesh, a device's part: `tensor` splits the heads."""
    tensor = 1 if mesh is None else mesh.shape.get("tensor", 1)
    heads = config.num_key_value_heads
    heads //= tensor if heads % tensor == 0 else 1
    return 2 * config.num_hidden_layers * heads * config.head_dim * jnp.dtype(dtype).itemsize


def rows_that_fit(budget: int, token_bytes: int, prompt_length: int, max_new_tokens: int) -> int:
    """The largest block, in rollouts, that fits a budget in bytes.

    Raises:
      UserError: not even one rollout does.
    """
    rows = (budget // token_bytes - 2 * prompt_length) // max_new_tokens
    if rows < 1:
        needed = token_bytes * block_tokens(1, prompt_length, max_new_tokens)
        raise UserError(
            f"rollout.max_cache_bytes_per_device = {budget}: one rollout of {prompt_length} + {max_new_tokens} tokens "
            f"takes {needed} bytes"
        )
    return rows


def block_tokens(size: int, prompt_length: int, max_new_tokens: int) -> int:
    """Tokens whose keys and values a block of `size` rollouts holds at full length.

    The prompt counts twice: as it is computed, once for all its blocks, and as the block reads it.
    """
    return size * max_new_tokens + 2 * prompt_length
