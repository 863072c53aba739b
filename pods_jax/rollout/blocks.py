"""Where rollouts are decoded: in blocks of g rollouts of one prompt, so that unequal groups share one program."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, Shaped

from pods_jax.rollout.buckets import bucket


class Layout(NamedTuple):
    """Q prompts to prefill and B blocks of g rollouts to decode; each device has the same number of both.

    A block is on a device that has its prompt: a prompt is prefilled once on every device that decodes a part of its
    group. Padding is at the end of each device's share.

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

    def grouped(self, values: Shaped[np.ndarray, "B g ..."], shape: tuple[int, int], fill: int | float) -> np.ndarray:
        """Values of all rollouts, by group: [P, n, ...] for `shape` (P, n); `fill` where there is no rollout."""
        out = np.full((*shape, *values.shape[2:]), fill, values.dtype)
        real = self.rows >= 0
        out[np.broadcast_to(self.groups[:, None], real.shape)[real], self.rows[real]] = values[real]
        return out


def block_size(counts: Sequence[int]) -> int:
    """The g that costs least, if a block costs as much as g + 1 rollouts: g = n for equal counts n, 32 for 32 and 96.

    It depends on which counts there are, not on how many prompts have each, so that g is the same in every round.
    """
    distinct = set(counts)
    return min(range(max(distinct), 0, -1), key=lambda g: sum(-(-count // g) * (g + 1) for count in distinct))


def arrange(counts: Sequence[int], size: int, devices: int = 1) -> Layout:
    """Blocks of `size` rollouts for every prompt's count, in order; the numbers of prompts and blocks are buckets."""
    needed = -(-np.asarray(counts) // size)
    groups = np.repeat(np.arange(len(counts)), needed)
    parts = np.concatenate([np.arange(k) for k in needed])
    rows = parts[:, None] * size + np.arange(size)
    rows = np.where(rows < np.asarray(counts)[groups][:, None], rows, -1)

    per_device = bucket(-(-len(groups) // devices))
    shares = [groups[d * per_device : (d + 1) * per_device] for d in range(devices)]
    held = [np.unique(share, return_inverse=True) for share in shares]
    num_prompts = bucket(max(len(prompts) for prompts, _ in held))
    padding = devices * per_device - len(groups)
    return Layout(
        prompts=np.concatenate([_padded(prompts, num_prompts, -1) for prompts, _ in held]),
        owners=np.stack([_padded(owners, per_device, 0) for _, owners in held]) if needed.max() > 1 else None,
        groups=np.pad(groups, (0, padding), constant_values=-1),
        rows=np.pad(rows, ((0, padding), (0, 0)), constant_values=-1),
    )


def _padded(x: np.ndarray, size: int, value: int) -> np.ndarray:
    return np.pad(x, (0, size - len(x)), constant_values=value)


def per_block(x: Shaped[Array, "Q ..."], owners: Int[Array, "devices blocks"]) -> Shaped[Array, "B ..."]:
    """What belongs to each block's prompt; every device looks among its own prompts only."""
    parts = x.reshape(len(owners), -1, *x.shape[1:])
    return jax.vmap(lambda part, owner: part[owner])(parts, owners).reshape(-1, *x.shape[1:])
