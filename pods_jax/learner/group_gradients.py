"""Gradients of single groups of a batch: their squares and products, of which `noise_scale` estimates B."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax

from pods_jax.buckets import ceil_div
from pods_jax.learner.batch import Batch
from pods_jax.learner.update import BatchLoss, Micro, compiler_options, cut
from pods_jax.models.decoder import Params
from pods_jax.noise_scale import Moments
from pods_jax.parallel import batch_sharding, num_shards, place, to_host

Rows = Sequence[int]
"""The blocks of a batch that hold one group; none for a group without a gradient."""


@dataclasses.dataclass(frozen=True)
class GroupGradients:
    """Compiled parts of a measurement, made by `make_group_gradients`.

    Attributes:
      weighed: the batch, its mask, and its tokens' weights in the whole batch's loss.
      gradient: (params, base, blocks of one group, scale) -> the gradient of their share in the loss, scaled.
    """

    mesh: jax.sharding.Mesh
    weighed: Callable[[Batch], Micro]
    gradient: Callable[[Params, Params | None, Micro, np.float32], Params]

    def moments(self, params: Params, base: Params | None, batch: Batch, groups: Sequence[Sequence[Rows]]) -> Moments:
        """Moments of the gradients of a batch's groups, each scaled so that their mean is the batch's gradient.

        Groups are computed one after the other, and a second time once the mean is known: beside the parameters, four
        gradients exist at a time.

        Args:
          params: those that are trained; base: the frozen ones beneath adapters, or None.
          groups: of each prompt its groups; all prompts have equally many.
        """
        micro = to_host(self.weighed(batch))
        width = _padded_width(groups, num_shards(self.mesh))
        scale = np.float32(sum(map(len, groups)))

        def gradients(of_prompt: Sequence[Rows]) -> list[Params | None]:
            blocks = [self._placed(micro, rows, width) if len(rows) else None for rows in of_prompt]
            return [None if b is None else self.gradient(params, base, b, scale) for b in blocks]

        squares = np.zeros((len(groups), len(groups[0])))
        prompt_squares, dots = np.zeros((2, len(groups)))
        total = None
        for i, of_prompt in enumerate(groups):
            found = gradients(of_prompt)
            squares[i] = [_dot(g, g) for g in found]
            mean = _mean(found)
            prompt_squares[i] = _dot(mean, mean)
            total = _sum([total, mean])
        for i, of_prompt in enumerate(groups):
            dots[i] = _dot(_mean(gradients(of_prompt)), total) / len(groups)
        return Moments(squares, prompt_squares, dots)

    def _placed(self, micro: Micro, rows: Rows, width: int) -> Micro:
        """A group's blocks on the devices, with empty ones after them."""

        def own(x: np.ndarray) -> np.ndarray:
            return np.concatenate([x[np.asarray(rows)], np.zeros((width - len(rows), *x.shape[1:]), x.dtype)])

        return place(jax.tree.map(own, micro), batch_sharding(self.mesh))


def make_group_gradients(loss: BatchLoss, mesh: jax.sharding.Mesh) -> GroupGradients:
    """The programs of a loss; a micro-batch is one block a device."""

    def gradient(params: Params, base: Params | None, blocks: Micro, scale: jax.Array) -> Params:
        count = len(blocks.mask) // num_shards(mesh)
        micro = jax.tree.map(functools.partial(cut, count=count), blocks)
        return jax.tree.map(lambda g: g * scale, loss.gradient(params, base, micro)[0][1])

    options = compiler_options(mesh)
    return GroupGradients(
        mesh,
        jax.jit(loss.weighed, out_shardings=batch_sharding(mesh)),
        jax.jit(gradient, out_shardings=loss.shardings, compiler_options=options),
    )


def _padded_width(groups: Sequence[Sequence[Rows]], devices: int) -> int:
    """Blocks of the largest group, as a multiple of the devices."""
    return devices * max(1, ceil_div(max(len(rows) for of_prompt in groups for rows in of_prompt), devices))


# ---------------------------------------------------------------- gradients, where None is 0


def _sum(gradients: Sequence[Params | None]) -> Params | None:
    present = [g for g in gradients if g is not None]
    return functools.reduce(_added, present) if present else None


def _mean(gradients: Sequence[Params | None]) -> Params | None:
    total = _sum(gradients)
    return None if total is None else _divided(total, np.float32(len(gradients)))


def _dot(x: Params | None, y: Params | None) -> float:
    return 0.0 if x is None or y is None else float(_product(x, y))


@jax.jit
def _added(x: Params, y: Params) -> Params:
    return optax.tree.add(x, y)


@jax.jit
def _divided(x: Params, divisor: Any) -> Params:
    return jax.tree.map(lambda leaf: (leaf / divisor).astype(leaf.dtype), x)


@jax.jit
def _product(x: Params, y: Params) -> jax.Array:
    return optax.tree.vdot(x, y)
