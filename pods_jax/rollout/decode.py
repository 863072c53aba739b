"""The sampler's programs: prefill each prompt once, then decode its rollouts together, a chunk of tokens at a time.

Between two chunks `rearrange` drops rollouts and lets the cache grow, so that the work follows the tokens that are
really generated. `resume` computes the cache of tokens that were decoded before, many of them at a time.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from pods_jax.models import decoder
from pods_jax.models.decoder import ModelConfig, Params
from pods_jax.models.head import project
from pods_jax.rollout.draw import Drawing, choose, marked, rollout_uniforms, seen_tokens
from pods_jax.rollout.layout import take

# ---------------------------------------------------------------- keys and values
#
# R = B g rollouts in blocks of g that share a prompt. The keys of R rollouts are [R, K, h, U], those of B prompts
# [B, K, h, S]; values are [R, K, U, h] and [B, K, S, h]. XLA multiplies these layouts without a copy: each score and
# each output of `attend` is a plain batched matrix product.


class Cache(NamedTuple):
    """Keys [rows, K, h, U] and values [rows, K, U, h] of one layer; a row is a rollout or a prompt."""

    k: Array
    v: Array


def prompt_cache(kv: decoder.KV) -> Cache:
    """The prompts' keys and values [Q, 1, S, K, h] of one layer, as the decode loop reads them."""
    return Cache(kv.k[:, 0].transpose(0, 2, 3, 1), kv.v[:, 0].transpose(0, 2, 1, 3))


def empty_cache(rows: int, capacity: int, prompts: Cache) -> Cache:
    """No tokens yet, of at most `capacity`, for the layer that the prompts' cache is of."""
    K, h = prompts.k.shape[1:3]
    return Cache(jnp.zeros((rows, K, h, capacity), prompts.k.dtype), jnp.zeros((rows, K, capacity, h), prompts.v.dtype))


def extend(cache: Cache, kv: decoder.KV, t: Int[Array, ""]) -> Cache:
    """Writes the keys and values [R, 1, k, K, h] of token t and the following."""
    k, v = (x.reshape(-1, *x.shape[2:]) for x in kv)
    return Cache(
        jax.lax.dynamic_update_slice_in_dim(cache.k, k.transpose(0, 2, 3, 1), t, 3),
        jax.lax.dynamic_update_slice_in_dim(cache.v, v.transpose(0, 2, 1, 3), t, 2),
    )


def grown(cache: Cache, capacity: int) -> Cache:
    """The same tokens, with room for `capacity`."""
    more = (0, capacity - cache.k.shape[3])
    return Cache(jnp.pad(cache.k, ((0, 0),) * 3 + (more,)), jnp.pad(cache.v, ((0, 0),) * 2 + (more, (0, 0))))


def attend(
    q: Float[Array, "B g k H h"], own: Cache, t: Int[Array, ""], prompts: Cache, valid: Bool[Array, "B S"]
) -> Float[Array, "B g k H h"]:
    """Each rollout's tokens t to t + k - 1 attend to its block's prompt, where valid, and to its own up to themselves.

    Both parts have their own scores and one common maximum and denominator, so nothing is concatenated.
    """
    B, g, k, H, h = q.shape
    _, K, _, U = own.k.shape
    G = H // K
    M = G * k

    def by_block(x):  # [R, K, M, ...] -> [B, K, g M, ...], rows of one matrix for a block's prompt
        return x.reshape(B, g, K, M, -1).swapaxes(1, 2).reshape(B, K, g * M, -1)

    def by_row(x):
        return x.reshape(B, K, g, M, -1).swapaxes(1, 2).reshape(B * g, K, M, -1)

    q = q.reshape(B * g, k, K, G, h).transpose(0, 2, 3, 1, 4).reshape(B * g, K, M, h) * h**-0.5
    past = jnp.tile(jnp.arange(U) <= t + jnp.arange(k)[:, None], (G, 1))
    to_own = jnp.einsum("rkmh,rkhu->rkmu", q, own.k, preferred_element_type=jnp.float32)
    to_own = jnp.where(past, to_own, -jnp.inf)
    to_prompt = jnp.einsum("bkmh,bkhs->bkms", by_block(q), prompts.k, preferred_element_type=jnp.float32)
    to_prompt = jnp.where(valid[:, None, None], to_prompt, -jnp.inf)
    top = jnp.maximum(to_own.max(-1, keepdims=True), by_row(to_prompt.max(-1, keepdims=True)))
    to_own = jnp.exp(to_own - top)
    to_prompt = jnp.exp(to_prompt - by_block(top))
    total = to_own.sum(-1, keepdims=True) + by_row(to_prompt.sum(-1, keepdims=True))
    out = jnp.einsum("rkmu,rkuh->rkmh", to_own.astype(q.dtype), own.v)
    out += by_row(jnp.einsum("bkms,bksh->bkmh", to_prompt.astype(q.dtype), prompts.v))
    out = (out / total).astype(q.dtype).reshape(B * g, K, G, k, h)
    return out.transpose(0, 3, 1, 2, 4).reshape(B, g, k, H, h)


Attention = Callable[[Array, Cache, Array, Cache, Array], Array]
"""A function like `attend`, for k = 1."""

# ---------------------------------------------------------------- the programs


class Decoded(NamedTuple):
    """A chunk's tokens, their log-probabilities, how many there are, and whether a rollout has ended.

    drawn_logprobs: as in `Drawn`.
    """

    tokens: Int[Array, "B g C"]
    logprobs: Float[Array, "B g C"]
    drawn_logprobs: Float[Array, "B g C"] | None
    lengths: Int[Array, "B g"]
    done: Bool[Array, "B g"]


class Blocks(NamedTuple):
    """B blocks of g rollouts between two chunks; the keys and values of a layer's rollouts are flat, R = B g.

    Attributes:
      prompt_ids, prompt_lengths: [B] each block's prompt; prompts: its keys and values, of every layer.
      samples: [B, g] the number of each rollout in its group, for the random keys; below 0 is padding.
      token: [B, g] the last token drawn, which is not yet through the layers.
      t: [] number of tokens drawn.
      cache: keys and values of the tokens before the last, of every layer.
      seen: [R, V] the tokens of each rollout and its prompt; None where the draw does not depend on them.
    """

    prompt_ids: Array
    prompt_lengths: Array
    prompts: list[Cache]
    samples: Array
    token: Array
    t: Array
    cache: list[Cache]
    seen: Array | None


Draw = Callable[[Array, Array, Array | None, Decoded], tuple[Array, Array | None, Decoded]]
"""(hidden [R, D], t, seen, chunk) -> (token t of every rollout [B, g], seen and the chunk with it)."""


@functools.partial(jax.jit, static_argnames=("config", "length", "drawing", "capacity", "attention"))
def begin(
    config: ModelConfig, weights: Params, prompts: Int[Array, "Q S"],
    prompt_lengths: Int[Array, " Q"], prompt_ids: Integer[Array, " Q"], owners: Int[Array, "devices blocks"] | None,
    samples: Int[Array, "B g"], key: Key[Array, ""], temperature: Float[Array, ""],
    *, length: int, drawing: Drawing, capacity: int | None = None, attention: Attention = attend,
) -> tuple[Decoded, Blocks | None]:  # fmt: skip
    """Prefills prompts, and decodes the first `length` tokens of every rollout.

    Args:
      weights: unstacked.
      prompts, prompt_lengths, prompt_ids: right-padded tokens, lengths, and names for the random keys.
      owners: each block's prompt among those of its device; None where block i is of prompt i.
      samples: as in `Blocks`.
      capacity: of the cache that is returned for more chunks; None: there are none.
      attention: `attend`, or an `attention_kernel.AttentionKernel`.
    """
    room = capacity or length
    hidden, blocks = _begun(config, weights, prompts, prompt_lengths, prompt_ids, owners, samples, drawing, room)
    draw = _drawer(weights, blocks, key, temperature, drawing)
    token, seen, decoded = draw(hidden, blocks.t, blocks.seen, _empty(samples, length, drawing))
    blocks = blocks._replace(token=token, t=blocks.t + 1, seen=seen)
    decoded, blocks = _loop(config, weights, blocks, decoded, draw, jnp.int32(length), attention)
    return decoded, None if capacity is None else blocks


@functools.partial(jax.jit, static_argnames=("config", "drawing", "capacity", "width"))
def resume(
    config: ModelConfig, weights: Params, prompts: Int[Array, "Q S"],
    prompt_lengths: Int[Array, " Q"], prompt_ids: Integer[Array, " Q"], owners: Int[Array, "devices blocks"] | None,
    samples: Int[Array, "B g"], tokens: Int[Array, "B g t"], *, drawing: Drawing, capacity: int, width: int,
) -> Blocks:  # fmt: skip
    """Blocks as `begin` and `proceed` leave them after t tokens, which are known.

    Args:
      tokens: the tokens of every rollout.
      width: number of tokens that go through the layers at a time, a divisor of t.
      The others are those of `begin`.
    """
    _, blocks = _begun(config, weights, prompts, prompt_lengths, prompt_ids, owners, samples, drawing, capacity)

    def step(i: Array, cache: list[Cache]) -> list[Cache]:
        part = jax.lax.dynamic_slice_in_dim(tokens, i * width, width, 2)
        return through_layers(config, weights, part, blocks.prompt_lengths, blocks.prompts, cache, i * width)[1]

    t = tokens.shape[2]
    cache = jax.lax.fori_loop(0, t // width, step, blocks.cache)
    seen = None if blocks.seen is None else marked(blocks.seen, tokens.reshape(-1, t))
    return blocks._replace(token=tokens[:, :, -1], t=jnp.int32(t), cache=cache, seen=seen)


def _begun(
    config: ModelConfig, weights: Params, prompts: Array, prompt_lengths: Array, prompt_ids: Array,
    owners: Array | None, samples: Array, drawing: Drawing, capacity: int,
) -> tuple[Float[Array, "R D"], Blocks]:  # fmt: skip
    """The hidden state after each rollout's prompt, and blocks without tokens; arguments as in `begin`."""
    hidden, caches = prefill(config, weights, prompts, prompt_lengths)
    seen = seen_tokens(prompts, prompt_lengths, config.vocab_size) if drawing.penalises else None
    of_prompts = (hidden, seen, prompt_ids, prompt_lengths, caches)
    if owners is not None:
        of_prompts = jax.tree.map(lambda x: take(x, owners), of_prompts)
    hidden, seen = jax.tree.map(lambda x: jnp.repeat(x, samples.shape[1], 0), of_prompts[:2])
    cache = [empty_cache(samples.size, capacity, c) for c in of_prompts[-1]]
    return hidden, Blocks(*of_prompts[2:], samples, jnp.zeros_like(samples), jnp.int32(0), cache, seen)


@functools.partial(jax.jit, static_argnames=("config", "length", "drawing", "attention"), donate_argnames="blocks")
def proceed(
    config: ModelConfig, weights: Params, blocks: Blocks, key: Key[Array, ""],
    temperature: Float[Array, ""], limit: Int[Array, ""], *, length: int, drawing: Drawing,
    attention: Attention = attend,
) -> tuple[Decoded, Blocks]:  # fmt: skip
    """Decodes the next `length` tokens of every rollout, or as many as make `limit` in all."""
    draw = _drawer(weights, blocks, key, temperature, drawing)
    decoded = _empty(blocks.samples, length, drawing)
    return _loop(config, weights, blocks, decoded, draw, jnp.minimum(blocks.t + length, limit), attention)


def rearrange(
    blocks: Blocks, origins: Int[Array, "devices blocks"] | None, rows: Int[Array, "devices rows"] | None,
    samples: Int[Array, "B g"], capacity: int,
) -> Blocks:  # fmt: skip
    """Other blocks, with a cache that holds `capacity` tokens. The given blocks are used up, layer by layer.

    Args:
      origins: for each new block, an old one of the same device and prompt; None: all blocks stay.
      rows: for each place in the new blocks, the device's rollout that gets it.
      samples: of the new blocks.
    """
    if rows is not None or capacity != blocks.cache[0].k.shape[3]:  # else a copy of all keys and values for nothing
        for i, cache in enumerate(blocks.cache):
            blocks.cache[i] = _moved(cache, rows, capacity)
    if origins is None:
        return blocks._replace(samples=samples)
    for i, cache in enumerate(blocks.prompts):
        blocks.prompts[i] = jax.tree.map(lambda x: _taken(x, origins), cache)
    return blocks._replace(
        prompt_ids=_taken(blocks.prompt_ids, origins),
        prompt_lengths=_taken(blocks.prompt_lengths, origins),
        samples=samples,
        token=_taken(blocks.token.ravel(), rows).reshape(samples.shape),
        seen=None if blocks.seen is None else _taken(blocks.seen, rows),
    )


_taken = jax.jit(take)


@functools.partial(jax.jit, static_argnames="capacity")
def _moved(cache: Cache, rows: Int[Array, "devices rows"] | None, capacity: int) -> Cache:
    return grown(cache if rows is None else jax.tree.map(lambda x: take(x, rows), cache), capacity)


# ---------------------------------------------------------------- the loop


class _State(NamedTuple):
    """The parts of blocks that change with a token, and the chunk."""

    t: Array
    token: Array
    cache: list[Cache]
    seen: Array | None
    decoded: Decoded


def _loop(
    c: ModelConfig, weights: Params, blocks: Blocks, decoded: Decoded, draw: Draw, end: Array, attention: Attention
) -> tuple[Decoded, Blocks]:
    """Token after token until `end` tokens are drawn, or all rollouts are done."""

    def keep_going(state: _State) -> Array:
        return (state.t < end) & ~state.decoded.done.all()

    def step(state: _State) -> _State:
        t, token, cache, seen, decoded = state
        hidden, cache = decode_token(c, weights, token, blocks.prompt_lengths, blocks.prompts, cache, t - 1, attention)
        token, seen, decoded = draw(hidden, t, seen, decoded)
        return _State(t + 1, token, cache, seen, decoded)

    start = _State(blocks.t, blocks.token, blocks.cache, blocks.seen, decoded)
    t, token, cache, seen, decoded = jax.lax.while_loop(keep_going, step, start)
    return decoded, blocks._replace(t=t, token=token, cache=cache, seen=seen)


def _empty(samples: Int[Array, "B g"], length: int, drawing: Drawing) -> Decoded:
    """A chunk without tokens; padding is done from the start."""
    shape = (*samples.shape, length)
    return Decoded(
        tokens=jnp.full(shape, drawing.pad_id, jnp.int32),
        logprobs=jnp.zeros(shape),
        drawn_logprobs=jnp.zeros(shape) if drawing.reshapes else None,
        lengths=jnp.zeros(samples.shape, jnp.int32),
        done=samples < 0,
    )


def _drawer(weights: Params, blocks: Blocks, key: Key[Array, ""], temperature: Array, drawing: Drawing) -> Draw:
    """Draws into a chunk that begins with token `blocks.t`; rollouts that are done get padding."""
    uniforms = rollout_uniforms(key, blocks.prompt_ids, blocks.samples, blocks.cache[0].k.shape[-1])
    first = blocks.t

    def draw(hidden: Array, t: Array, seen: Array | None, d: Decoded) -> tuple[Array, Array | None, Decoded]:
        def written(chunk: Array, values: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(chunk, values, t - first, 2)

        logits = project(hidden, weights) / temperature
        drawn = choose(logits, uniforms[..., t].ravel(), drawing, seen)
        token, *logprobs = jax.tree.map(lambda x: x.reshape(d.done.shape), drawn)
        token = jnp.where(d.done, drawing.pad_id, token)
        logprobs = jax.tree.map(lambda x: jnp.where(d.done, 0.0, x), logprobs)
        decoded = Decoded(
            *jax.tree.map(written, d[:3], (token, *logprobs)),
            d.lengths + ~d.done,
            d.done | jnp.isin(token, jnp.array(drawing.eos_ids, jnp.int32)),
        )
        if seen is not None:
            seen = marked(seen, token.reshape(-1, 1))
        return token, seen, decoded

    return draw


# ---------------------------------------------------------------- the model


def prefill(
    c: ModelConfig, weights: Params, prompts: Int[Array, "Q S"], prompt_lengths: Int[Array, " Q"]
) -> tuple[Float[Array, "Q D"], list[Cache]]:
    """The hidden state after each prompt's last token, and every layer's prompt keys and values."""
    S = prompts.shape[1]
    angles = decoder.rope_angles(c, jnp.arange(S)[None, None])
    x = weights["embed"][prompts][:, None]
    caches = []
    for w in weights["layers"]:
        x, kv = decoder.layer(c, w, x, angles)
        caches.append(prompt_cache(kv))
    last = jnp.maximum(prompt_lengths - 1, 0)
    x = jnp.take_along_axis(x[:, 0], last[:, None, None], axis=1)[:, 0]
    return decoder.rms_norm(x, weights["final_norm"], c.rms_norm_eps), caches


def decode_token(
    c: ModelConfig, weights: Params, tokens: Int[Array, "B g"], prompt_lengths: Int[Array, " B"],
    prompts: list[Cache], cache: list[Cache], t: Int[Array, ""], attention: Attention = attend,
) -> tuple[Float[Array, "R D"], list[Cache]]:  # fmt: skip
    """Run completion token t of every rollout through the layers: the hidden state after it, the longer cache."""
    x, longer = through_layers(c, weights, tokens[:, :, None], prompt_lengths, prompts, cache, t, attention)
    return decoder.rms_norm(x.reshape(tokens.size, -1), weights["final_norm"], c.rms_norm_eps), longer


def through_layers(
    c: ModelConfig, weights: Params, tokens: Int[Array, "B g k"], prompt_lengths: Int[Array, " B"],
    prompts: list[Cache], cache: list[Cache], t: Int[Array, ""], attention: Attention = attend,
) -> tuple[Float[Array, "B g k D"], list[Cache]]:  # fmt: skip
    """Completion tokens t to t + k - 1 of every rollout after the last layer, not normalised; the longer cache."""
    B, g, k = tokens.shape
    positions = jnp.repeat(prompt_lengths, g)[:, None, None] + t + jnp.arange(k)
    angles = decoder.rope_angles(c, positions)
    valid = jnp.arange(prompts[0].k.shape[-1]) < jnp.maximum(prompt_lengths, 1)[:, None]
    x = weights["embed"][tokens.reshape(-1, 1, k)]  # not in blocks: with g next to D a TPU pads g, and copies
    longer = []
    for w, own, prompt in zip(weights["layers"], cache, prompts, strict=True):
        q, new = decoder.layer_qkv(c, w, x, angles)
        own = extend(own, new, t)
        attended = attention(q.reshape(B, g, *q.shape[2:]), own, t, prompt, valid)
        x = decoder.layer_output(c, w, x, attended.reshape(q.shape))
        longer.append(own)
    return x.reshape(B, g, k, -1), longer
