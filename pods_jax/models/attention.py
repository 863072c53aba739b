"""Causal grouped-query attention of a group's rollouts to their shared prompt and to themselves, for the decoder.

`attend` has several implementations, which agree to rounding. All sum scores in float32 and take softmaxes there.

Shapes: P prompts, n rollouts of a prompt, T tokens of each, S prompt tokens, H query heads, K key/value heads,
G = H / K query heads of each, h head_dim.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec
from jaxtyping import Array, Bool, Float

from pods_jax.buckets import ceil_div

CHUNKS = (128, 512)
"""Least and most queries, and keys, whose scores exist at a time; an eighth of the tokens in between."""

SAVED = "attention"
"""The name under which remat policies find what a long attention need not compute again."""


class KV(NamedTuple):
    """Keys and values of one layer: [P, n, T, K, h], rotated; a group's shared prompt has n = 1."""

    k: Array
    v: Array


class Prefix(NamedTuple):
    """A prompt's keys and values, shared by all rollouts of its group, and which of them exist: [P, S]."""

    kv: KV
    valid: Bool[Array, "P S"]


def attend(
    q: Float[Array, "P n T H h"],
    own: KV,
    prefix: Prefix | None = None,
    implementation: str = "chunked",
    sharding: NamedSharding | None = None,
) -> Float[Array, "P n T H h"]:
    """Each token's attention to its group's prompt, if given, and to its rollout's tokens up to itself.

    Args:
      implementation: one of IMPLEMENTATIONS, or "auto": "splash" on a TPU, "chunked" elsewhere.
      sharding: how the leading axis is split over a mesh, whose axis `tensor` splits the heads. Kernels need it, as the
        compiler cannot split them.
    """
    if implementation == "auto":
        implementation = "splash" if _platform(sharding) == "tpu" else "chunked"
    scaled = q * q.shape[-1] ** -0.5
    return IMPLEMENTATIONS[implementation](scaled, own, prefix, sharding)


def _platform(sharding: NamedSharding | None) -> str:
    return jax.default_backend() if sharding is None else sharding.mesh.devices.flat[0].platform


# ---------------------------------------------------------------- whole score matrices


def whole(q: Array, own: KV, prefix: Prefix | None = None, sharding: NamedSharding | None = None) -> Array:
    """All scores at once, [P, K, n, T, G, S + T] in float32: fastest where they are few.

    The prompt's scores are one matrix product a group ([n T, h] by [h, S]), so the prompt is never copied n times.
    """
    P, n, T, H, h = q.shape
    K = own.k.shape[-2]
    q = q.reshape(P, n, T, K, H // K, h)
    causal = jnp.tril(jnp.ones((T, T), bool))[:, None, :]
    scores = jnp.where(causal, _in_float32("pntkgh,pnukh->pkntgu", q, own.k), -jnp.inf)
    if prefix is not None:
        shared = _in_float32("pntkgh,pskh->pkntgs", q, prefix.kv.k[:, 0])
        shared = jnp.where(prefix.valid[:, None, None, None, None, :], shared, -jnp.inf)
        scores = jnp.concatenate([shared, scores], -1)
    weights = jax.nn.softmax(scores, -1).astype(q.dtype)
    shared, weights = jnp.split(weights, [weights.shape[-1] - T], axis=-1)
    out = jnp.einsum("pkntgu,pnukh->pntkgh", weights, own.v)
    if prefix is not None:
        out += jnp.einsum("pkntgs,pskh->pntkgh", shared, prefix.kv.v[:, 0])
    return out.reshape(P, n, T, H, h)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_float32(products: str, a: Array, b: Array) -> Array:
    """An einsum summed in float32; the products of its gradient have the precision of a and b."""
    return _in_float32_forward(products, a, b)[0]


def _in_float32_forward(products: str, a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    return jnp.einsum(products, a, b, preferred_element_type=jnp.float32), (a, b)


def _in_float32_backward(products: str, factors: tuple[Array, Array], bar: Array) -> tuple[Array, Array]:
    return jax.vjp(functools.partial(jnp.einsum, products), *factors)[1](bar.astype(factors[0].dtype))


_in_float32.defvjp(_in_float32_forward, _in_float32_backward)


# ---------------------------------------------------------------- chunks


def chunked(
    q: Array, own: KV, prefix: Prefix | None = None, sharding: NamedSharding | None = None, size: int | None = None
) -> Array:
    """Scores of `size` queries and keys at a time (None: see CHUNKS), and only those of the causal half.

    FlashAttention-2 (Dao 2023, arXiv 2307.08691) in JAX: running maxima and sums, and in the backward pass the scores
    again, from the output and each query's logarithm of its denominator, which are kept under the name SAVED. Where one
    chunk has all tokens, `whole` it is.
    """
    P, n, T, H, h = q.shape
    K = own.k.shape[-2]
    S = 0 if prefix is None else prefix.valid.shape[1]
    lengths = chunk_lengths(T, S, size)
    if lengths is None:
        return whole(q, own, prefix)
    length, length_s = lengths
    queries = _chunks(q.reshape(P, n, T, K, H // K, h), length)  # [I, P, n, C, K, G, h]
    queries = queries.transpose(0, 1, 4, 2, 3, 5, 6).reshape(-1, P, K, n, length * (H // K), h)
    keys = _Keys(*(_key_chunks(x, length) for x in own))
    shared = None
    if prefix is not None:
        prefix_keys = _Keys(*(_key_chunks(x, length_s) for x in prefix.kv))
        shared = prefix_keys, _chunks(prefix.valid[:, None], length_s)[:, :, 0]
    out = _flash(queries, keys, shared)
    out = out.reshape(-1, P, K, n, length, H // K, h).transpose(1, 3, 0, 4, 2, 5, 6)
    return out.reshape(P, n, -1, H, h)[:, :, :T]


def chunk_lengths(T: int, S: int, size: int | None = None) -> tuple[int, int] | None:
    """Tokens of a chunk of a rollout, and of its prompt; None where `chunked` is `whole`."""
    size = size or min(max(CHUNKS[0], T // 8), CHUNKS[1])
    return None if max(2 * T, S) <= 2 * size else (_chunk_length(T, size), _chunk_length(max(S, 1), size))


def _chunk_length(tokens: int, size: int) -> int:
    """The length, a multiple of 8, of as few equal chunks of at most `size` as hold so many tokens."""
    return 8 * ceil_div(ceil_div(tokens, ceil_div(tokens, size)), 8)


def _chunks(x: Array, length: int) -> Array:
    """[P, n, T, ...] -> [chunks, P, n, length, ...], padded with zeros at the end."""
    x = jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % length)) + ((0, 0),) * (x.ndim - 3))
    return jnp.moveaxis(x.reshape(*x.shape[:2], -1, length, *x.shape[3:]), 2, 0)


def _key_chunks(x: Array, length: int) -> Array:
    """[P, n, T, K, h] -> [chunks, P, K, n, length, h]"""
    return _chunks(x, length).transpose(0, 1, 4, 2, 3, 5)


class _Keys(NamedTuple):
    """Keys and values in chunks: [J, P, K, N, C, h], N = n of the rollouts' own, 1 of the prompt's."""

    k: Array
    v: Array


Shared = tuple[_Keys, Array] | None
"""The prompt's keys, and which exist: [J, P, C]."""


@jax.custom_vjp
def _flash(queries: Array, own: _Keys, shared: Shared) -> Array:
    """The output, like queries: [I, P, K, n, R, h], the C tokens of a chunk with their G heads as R = C G rows."""
    return _flash_forward(queries, own, shared)[0]


def _flash_forward(queries: Array, own: _Keys, shared: Shared) -> tuple[Array, tuple]:
    def chunk(i: Array) -> tuple[Array, Array]:
        q = queries[i]
        rows = q.shape[:-1]
        state = jnp.zeros(q.shape, jnp.float32), jnp.full(rows, -jnp.inf), jnp.zeros(rows)
        state = _attended(q, own, i, _causal(q, own), state)  # first: it gives every row a finite maximum
        state = jax.lax.fori_loop(0, i, lambda j, state: _attended(q, own, j, None, state), state)
        if shared is not None:
            keys, valid = shared
            state = jax.lax.fori_loop(
                0, len(valid), lambda j, state: _attended(q, keys, j, _existing(valid[j]), state), state
            )
        out, top, total = state
        return (out / total[..., None]).astype(q.dtype), top + jnp.log(total)

    out, logs = jax.lax.map(chunk, jnp.arange(len(queries)))
    out, logs = checkpoint_name(out, SAVED), checkpoint_name(logs, SAVED)
    return out, (queries, own, shared, out, logs)


def _attended(q: Array, keys: _Keys, j: Array, mask: Array | None, state: tuple) -> tuple[Array, Array, Array]:
    """The sums over keys (outputs, maxima, denominators) with chunk j among them."""
    out, top, total = state
    scores = _scores(q, keys.k[j], mask)
    higher = jnp.maximum(top, scores.max(-1))
    weights = jnp.exp(scores - higher[..., None])
    shrink = jnp.exp(top - higher)
    out = out * shrink[..., None] + _by_keys("pkncd,pkndh->pknch", weights.astype(q.dtype), keys.v[j], q.shape)
    return out, higher, total * shrink + weights.sum(-1)


def _scores(q: Array, k: Array, mask: Array | None) -> Array:
    scores = _by_keys("pknch,pkndh->pkncd", q, k, (*q.shape[:-1], k.shape[-2]))
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf)


def _by_keys(products: str, x: Array, keys: Array, shape: tuple[int, ...]) -> Array:
    """The product of each rollout's rows [P, K, n, R, ...] and its keys, all rollouts' rows with a shared prompt's."""
    return _in_float32(products, _like(x, keys), keys).reshape(shape)


def _like(x: Array, keys: Array) -> Array:
    """[P, K, n, R, ...] -> [P, K, N, n R / N, ...]"""
    return x.reshape(*keys.shape[:3], -1, x.shape[-1])


def _causal(q: Array, own: _Keys) -> Array:
    """True [R, C] where a row of a chunk sees one of the chunk's own keys."""
    length = own.k.shape[-2]
    return jnp.repeat(jnp.tril(jnp.ones((length, length), bool)), q.shape[-2] // length, axis=0)


def _existing(valid: Array) -> Array:
    return valid[:, None, None, None, :]


def _flash_backward(residuals: tuple, out_bar: Array) -> tuple:
    queries, own, shared, out, logs = residuals
    # The sum over keys of weight x gradient of the weight, which every score's gradient subtracts: FlashAttention-2
    # takes it from the output, so that no pass over the keys is needed for it.
    slopes = (out_bar.astype(jnp.float32) * out).sum(-1)

    def chunk(bars: tuple[_Keys, _Keys | None], i: Array) -> tuple[tuple, Array]:
        q = queries[i]
        back = functools.partial(_attended_back, q, logs[i], slopes[i], out_bar[i])
        own_bar, shared_bar = bars
        q_bar, own_bar = back(own, i, _causal(q, own), (jnp.zeros(q.shape, jnp.float32), own_bar))
        q_bar, own_bar = jax.lax.fori_loop(0, i, lambda j, s: back(own, j, None, s), (q_bar, own_bar))  # all seen
        if shared is not None:
            keys, valid = shared
            q_bar, shared_bar = jax.lax.fori_loop(
                0, len(valid), lambda j, s: back(keys, j, _existing(valid[j]), s), (q_bar, shared_bar)
            )
        return (own_bar, shared_bar), q_bar.astype(q.dtype)

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), (own, shared and shared[0]))
    bars, queries_bar = jax.lax.scan(chunk, zeros, jnp.arange(len(queries)))
    own_bar, shared_bar = jax.tree.map(lambda bar: bar.astype(queries.dtype), bars)
    return queries_bar, own_bar, shared and (shared_bar, None)


def _attended_back(
    q: Array, logs: Array, slopes: Array, out_bar: Array, keys: _Keys, j: Array, mask: Array | None, bars: tuple
) -> tuple[Array, _Keys]:
    """The gradients of a chunk's queries, and of all keys and values, with those of key chunk j added."""
    q_bar, keys_bar = bars
    k, v = keys.k[j], keys.v[j]
    weights = jnp.exp(_scores(q, k, mask) - logs[..., None])
    weights_bar = _by_keys("pknch,pkndh->pkncd", out_bar, v, weights.shape)
    scores_bar = (weights * (weights_bar - slopes[..., None])).astype(q.dtype)
    q_bar += _by_keys("pkncd,pkndh->pknch", scores_bar, k, q.shape)
    k_bar = _in_float32("pkncd,pknch->pkndh", _like(scores_bar, k), _like(q, k))
    v_bar = _in_float32("pkncd,pknch->pkndh", _like(weights.astype(q.dtype), v), _like(out_bar, v))
    return q_bar, _Keys(keys_bar.k.at[j].add(k_bar), keys_bar.v.at[j].add(v_bar))


_flash.defvjp(_flash_forward, _flash_backward)


# ---------------------------------------------------------------- kernels


def splash(q: Array, own: KV, prefix: Prefix | None = None, sharding: NamedSharding | None = None) -> Array:
    """JAX's SplashAttention kernel for TPUs, interpreted elsewhere, for tests. Each rollout has a copy of all keys.

    Kernels cannot be split by the compiler: each device runs its own on its part of the groups and heads.
    """
    interpret = _platform(sharding) != "tpu"
    if sharding is None:
        return _splash_here(q, own, prefix, interpret)
    groups = sharding.spec[0]
    heads = "tensor" if "tensor" in sharding.mesh.axis_names else None
    by_head = Spec(groups, None, None, heads, None)
    specs = by_head, KV(by_head, by_head), prefix and Prefix(KV(by_head, by_head), Spec(groups, None))
    kernel = functools.partial(_splash_here, interpret=interpret)
    split = jax.shard_map(kernel, mesh=sharding.mesh, in_specs=specs, out_specs=by_head, check_vma=False)
    return split(q, own, prefix)


def _splash_here(q: Array, own: KV, prefix: Prefix | None, interpret: bool) -> Array:
    P, n, T, H, h = q.shape
    K = own.k.shape[-2]
    k, v, seen = _joined(own, prefix, n)
    # Keys are padded at the front, where segments hide them, and queries at the end, where they are cut off again;
    # heads are padded with zeros to the width of the kernel's registers.
    length = T + -T % 128
    front = -(k.shape[2] - T) % 128
    k, v = (_padded(x, (front, length - T), h) for x in (k, v))
    seen = jnp.pad(seen, ((0, 0), (front, length - T)), constant_values=((0, 0), (False, True)))
    q = _padded(q, (0, length - T), h)
    kernel = _splash_kernel(H // K, length, k.shape[2], interpret)
    queries = q.reshape(P, n, length, K, H // K, -1).transpose(0, 1, 3, 4, 2, 5)  # [P, n, K, G, T, h]
    keys = (x.transpose(0, 1, 3, 2, 4) for x in (k, v))  # [P, n, K, S + T, h]
    by_head = jax.vmap(kernel, (0, 0, 0, None))
    by_rollout = jax.vmap(by_head, (0, 0, 0, None))
    out = jax.vmap(by_rollout)(queries, *keys, _segments(seen, length))
    return out.transpose(0, 1, 4, 2, 3, 5)[:, :, :T, ..., :h].reshape(P, n, T, H, h)


def _joined(own: KV, prefix: Prefix | None, n: int) -> tuple[Array, Array, Bool[Array, "P U"]]:
    """Keys and values of [prompt; own], the prompt's once for each of n rollouts, and which exist."""
    P, _, T, *_ = own.k.shape
    if prefix is None:
        return own.k, own.v, jnp.ones((P, T), bool)
    k, v = (
        jnp.concatenate([jnp.broadcast_to(shared, (P, n, *shared.shape[2:])), x], axis=2)
        for shared, x in zip(prefix.kv, own, strict=True)
    )
    return k, v, jnp.pad(prefix.valid, ((0, 0), (0, T)), constant_values=True)


def _padded(x: Array, tokens: tuple[int, int], head_dim: int) -> Array:
    """Zeros before and after the tokens [P, n, T, ...], and at the end of each head, up to a multiple of 128."""
    return jnp.pad(x, ((0, 0), (0, 0), tokens, (0, 0), (0, -head_dim % 128)))


def _segments(seen: Bool[Array, "P U"], queries: int) -> tuple[Array, Array]:
    from jax.experimental.pallas.ops.tpu import splash_attention

    return splash_attention.SegmentIds(jnp.ones((len(seen), queries), jnp.int32), seen.astype(jnp.int32))


def _splash_kernel(heads: int, queries: int, keys: int, interpret: bool) -> Callable:
    """The kernel of `heads` query heads that share keys; the last `queries` of the keys are the queries' own."""
    from jax.experimental.pallas.ops.tpu import splash_attention

    block_q, block_k = (next(b for b in (512, 256, 128) if size % b == 0) for size in (queries, keys))
    sizes = splash_attention.BlockSizes(
        block_q=block_q, block_kv=block_k, block_kv_compute=block_k, block_q_dkv=block_q, block_kv_dkv=block_k,
        block_kv_dkv_compute=block_k, block_q_dq=block_q, block_kv_dq=block_k,
    )  # fmt: skip
    mask = splash_attention.CausalMask((queries, keys), offset=keys - queries)
    return splash_attention.make_splash_mqa(
        splash_attention.MultiHeadMask([mask] * heads), block_sizes=sizes, head_shards=1, q_seq_shards=1,
        residual_checkpoint_name=SAVED, interpret=interpret,
    )  # fmt: skip


def cudnn(q: Array, own: KV, prefix: Prefix | None = None, sharding: NamedSharding | None = None) -> Array:
    """cuDNN's fused attention, for 16-bit values on NVIDIA GPUs. Each rollout has a copy of the keys, and a mask.

    The kernel knows no prompt before the causal part, so the mask is an array, [T, S + T] for each rollout.
    """
    return _dot_product_attention(q, own, prefix, "cudnn")


def _dot_product_attention(q: Array, own: KV, prefix: Prefix | None, implementation: str) -> Array:
    P, n, T, H, h = q.shape
    k, v, seen = _joined(own, prefix, n)
    causal = jnp.tril(jnp.ones((T, k.shape[2]), bool), k.shape[2] - T)
    mask = jnp.repeat(causal & seen[:, None, None, :], n, axis=0)
    q, k, v = (x.reshape(P * n, *x.shape[2:]) for x in (q, k, v))
    out = jax.nn.dot_product_attention(q, k, v, mask=mask, scale=1.0, implementation=implementation)
    return checkpoint_name(out, SAVED).reshape(P, n, T, H, h)


IMPLEMENTATIONS: dict[str, Callable] = {"whole": whole, "chunked": chunked, "splash": splash, "cudnn": cudnn}
"""(scaled q, own, prefix, sharding) -> attended, by name."""

NAMES = (*IMPLEMENTATIONS, "auto")
