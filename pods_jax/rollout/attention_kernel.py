"""`decode.attend` for one token of every rollout as a Pallas kernel for TPUs, interpreted elsewhere, for tests.

Scores stay on the chip, and of the cache only tiles of 128 tokens that hold some are read. Softmaxes are online, as in
FlashAttention (Dao et al. 2022, arXiv 2205.14135).

Shapes: B blocks of g rollouts, R = B g of them; K key/value heads with G query heads each, padded to M, a multiple of
the 8 sublanes of a register; h head_dim; S prompt tokens, U tokens of the cache's capacity. A step of the kernel has r
rollouts of N blocks, one key/value head, and c tokens of their prompts or their own.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec
from jaxtyping import Array, Bool, Float, Int

from pods_jax.buckets import ceil_div
from pods_jax.errors import UserError
from pods_jax.registry import nearest
from pods_jax.rollout.decode import Attention, Cache, attend

TILE = 128
"""Tokens of a step: as many as a register has lanes."""

STEP_BYTES = 6 << 20
"""Keys and values of a step at most. Two steps' are on the chip at a time, where a kernel may use 16 MiB of a v5e."""

NAMES = ("whole", "kernel")


def attention(name: str, sharding: NamedSharding | None) -> Attention:
    """The attention that `rollout.attention` names; sharding: as in `AttentionKernel`.

    Raises:
      UserError: it is not one of NAMES.
    """
    if name not in NAMES:
        raise UserError(f"attention = '{name}' is unknown ({nearest(name, NAMES)})")
    return AttentionKernel(sharding) if name == "kernel" else attend


@dataclasses.dataclass(frozen=True)
class AttentionKernel:
    """A function like `decode.attend`, for k = 1.

    Attributes:
      sharding: how blocks are split over a mesh, whose axis `tensor` splits the heads: the compiler cannot split
        kernels, so each device runs its own on its part. None: the default device has all.
    """

    sharding: NamedSharding | None = None

    def __call__(
        self, q: Float[Array, "B g 1 H h"], own: Cache, t: Int[Array, ""], prompts: Cache, valid: Bool[Array, "B S"]
    ) -> Float[Array, "B g 1 H h"]:
        """Each rollout's token t attends to its block's prompt and to its own tokens up to itself.

        valid: the beginning of each prompt, one token at least.
        """
        counts = valid.sum(-1, dtype=jnp.int32), jnp.reshape(t + 1, 1).astype(jnp.int32)
        if self.sharding is None:
            return _attend(q, *counts, own, prompts, interpret=jax.default_backend() != "tpu")
        mesh = self.sharding.mesh
        blocks = self.sharding.spec[0]
        tensor = mesh.shape.get("tensor", 1)
        heads = "tensor" if tensor > 1 and own.k.shape[1] % tensor == 0 else None
        rows, cache = Spec(blocks, None, None, heads), Spec(blocks, heads)
        kernel = functools.partial(_attend, interpret=mesh.devices.flat[0].platform != "tpu")
        specs = rows, Spec(blocks), Spec(), Cache(cache, cache), Cache(cache, cache)
        split = jax.shard_map(kernel, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False)
        return split(q, *counts, own, prompts)


def _attend(
    q: Float[Array, "B g 1 H h"], lengths: Int[Array, " B"], count: Int[Array, " 1"], own: Cache, prompts: Cache,
    interpret: bool,
) -> Float[Array, "B g 1 H h"]:  # fmt: skip
    """The attention of one device's blocks to `lengths` tokens of their prompts and `count` of their own."""
    B, g, _, H, h = q.shape
    R, K = own.k.shape[:2]
    G, M = H // K, 8 * ceil_div(H // K, 8)
    queries = jnp.pad((q * h**-0.5).reshape(R, K, G, h), ((0, 0), (0, 0), (0, M - G), (0, 0)))
    r = _rows(B, g, 2 * h * TILE * own.k.dtype.itemsize)
    N = max(r // g, 1)
    of_prompts = ceil_div(prompts.k.shape[-1], TILE)
    axis = 1 if h % TILE == 0 else 2
    own, prompts = (_with_tokens_in(x, axis) for x in (own, prompts))

    def of_rows(i, head, j, *scalars):
        return i, head, 0, 0

    def prompt_tile(i, head, j, *scalars):
        return i * r // (g * N), head, jnp.minimum(j, of_prompts - 1)

    def own_tile(i, head, j, *scalars):
        return i, head, jnp.maximum(j - of_prompts, 0)

    rows = pl.BlockSpec((r, None, M, h), of_rows)
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(R // r, K, of_prompts + pl.cdiv(count[0], TILE)),
        in_specs=[rows, *_tiles(prompts, N, axis, prompt_tile), *_tiles(own, r, axis, own_tile)],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((r, M, width), jnp.float32) for width in (h, 1, 1)],
    )
    out = pl.pallas_call(
        functools.partial(_step, g, of_prompts, axis),
        out_shape=jax.ShapeDtypeStruct(queries.shape, q.dtype),
        grid_spec=grid,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=interpret,
        name="decoding_attention",
    )(lengths, count, queries, *prompts, *_in_hbm(own, interpret))
    return out[:, :, :G].reshape(B, g, 1, H, h)


def _in_hbm(cache: Cache, interpret: bool) -> Cache:
    """The same, never copied onto the chip before the kernel begins: filled or not, it would be moved as a whole."""
    return cache if interpret else Cache(*(pltpu.with_memory_space_constraint(x, pltpu.HBM) for x in cache))


def _rows(B: int, g: int, bytes_of_row: int) -> int:
    """r: the most rollouts of whole blocks, or else an equal part of a block, whose keys and values a step can take."""
    fits = [N * g for N in range(1, B + 1) if B % N == 0 and N * (g + 1) * bytes_of_row <= STEP_BYTES]
    parts = [r for r in range(1, g) if g % r == 0 and (r + 1) * bytes_of_row <= STEP_BYTES]
    return max(parts + fits, default=1)


def _with_tokens_in(cache: Cache, axis: int) -> Cache:
    """Values with the tokens in this axis of a step's: 1, as they are, or 2, like keys.

    A TPU holds values that are narrower than its registers like keys anyway: they are not copied.
    """
    return cache if axis == 1 else Cache(cache.k, cache.v.swapaxes(2, 3))


def _tiles(cache: Cache, rows: int, axis: int, tile) -> tuple[pl.BlockSpec, pl.BlockSpec]:
    """Keys [rows, h, c] and values [rows, c, h] or, with the tokens in axis 2, [rows, h, c] of a step.

    tile: its index by rows, head and tokens.
    """
    _, _, h, tokens = cache.k.shape
    c = min(TILE, tokens)

    def of_keys(*step):
        i, head, j = tile(*step)
        return i, head, 0, j

    def of_values(*step):
        return *tile(*step), 0

    keys = pl.BlockSpec((rows, None, h, c), of_keys)
    return keys, pl.BlockSpec((rows, None, c, h), of_values) if axis == 1 else keys


# ---------------------------------------------------------------- the kernel


def _step(g, of_prompts, axis, lengths, count, q, prompt_k, prompt_v, own_k, own_v, out, *state):
    """Step j of some rows: a tile of their prompts, or one of their own tokens."""
    i, j = pl.program_id(0), pl.program_id(2)
    r, N = q.shape[0], prompt_k.shape[0]
    first = i * r // g
    tile = j - of_prompts

    @pl.when(j == 0)
    def _():
        for x, value in zip(state, (0.0, -jnp.inf, 0.0), strict=True):
            x[...] = jnp.full(x.shape, value, x.dtype)

    @pl.when(tile < 0)
    def _():
        counts = [lengths[first + n] - j * TILE for n in range(N)]
        _add(q, prompt_k, prompt_v, axis, counts, state)

    last = pl.num_programs(2) - 1

    @pl.when((tile >= 0) & (j < last))
    def _():
        _add(q, own_k, own_v, axis, None, state)

    @pl.when(j == last)
    def _():
        _add(q, own_k, own_v, axis, [count[0] - tile * TILE], state)
        total, _, denominator = state
        out[...] = (total[...] / denominator[...]).astype(out.dtype)


def _add(q, k, v, axis, counts, state):
    """Adds the keys of a tile to the sums over keys: outputs [r, M, h], maxima and denominators [r, M, 1].

    axis: of the tokens among the values.
    counts: tokens of the tile that exist, of each of the N prompts, or of all rows alike; None: all do.
    """
    out, top, total = state
    k, v = k[...], v[...]
    scores = _products(q[...], k, 1)
    if counts is not None:
        scores = jnp.where(_seen(scores.shape, 2, counts), scores, -jnp.inf)
        v = jnp.where(_seen(v.shape, axis, counts), v, 0)  # what is behind them may be NaN
    higher = jnp.maximum(top[...], scores.max(-1, keepdims=True))
    weights = jnp.exp(scores - higher)
    shrink = jnp.exp(top[...] - higher)
    out[...] = out[...] * shrink + _products(weights, v, axis)
    total[...] = total[...] * shrink + weights.sum(-1, keepdims=True)
    top[...] = higher


def _products(x: Float[Array, "r M a"], keys: Float[Array, "N _ _"], axis: int) -> Float[Array, "r M b"]:
    """Matrix products of each row, or of all r / N rows of a prompt, in float32; keys have a in this axis."""
    r, M, a = x.shape
    N, b = len(keys), keys.shape[3 - axis]
    x = x.astype(jnp.float32).reshape(N, r // N * M, a).astype(keys.dtype)  # 8 sublanes: whole registers of 32 bits
    products = jax.lax.dot_general(x, keys, (((2,), (axis,)), ((0,), (0,))), preferred_element_type=jnp.float32)
    return products.reshape(r, M, b)


def _seen(shape: tuple[int, int, int], axis: int, counts: list[Array]) -> Bool[Array, "a b c"]:
    """True where the index along an axis is below the count: of each equal part of the first axis, or of all."""
    part = shape[0] // len(counts), *shape[1:]
    limits = jnp.concatenate([jnp.full(part, count) for count in counts])
    return jax.lax.broadcasted_iota(jnp.int32, shape, axis) < limits
