"""The sampler's program: prefill each prompt once, then decode its rollouts together in one loop."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from pods_jax.models import decoder
from pods_jax.models.decoder import KV, Decoder, ModelConfig, Params, Prefix
from pods_jax.rollout.blocks import per_block
from pods_jax.rollout.draw import inverse_cdf, restrict, rollout_uniforms


@dataclasses.dataclass(frozen=True)
class Drawing:
    """How tokens are drawn, for all rollouts alike; see `generate`."""

    greedy: bool
    top_k: int
    top_p: float
    eos_ids: tuple[int, ...]
    pad_id: int


class Decoded(NamedTuple):
    """The tokens of all rollouts, their log-probabilities, how many there are, and whether the last is an end."""

    tokens: Int[Array, "B g T"]
    logprobs: Float[Array, "B g T"]
    lengths: Int[Array, "B g"]
    done: Bool[Array, "B g"]


class _State(NamedTuple):
    """The loop's carry: t tokens are drawn; the last of them, `token` [B, g], is not yet through the layers."""

    t: Array
    token: Array
    decoded: Decoded
    cache: list[KV]


@functools.partial(jax.jit, static_argnames=("model", "max_new_tokens", "drawing"))
def decode(
    model: Decoder, params: Params, prompts: Int[Array, "Q S"], prompt_lengths: Int[Array, " Q"],
    prompt_ids: Integer[Array, " Q"], owners: Int[Array, "devices blocks"] | None, samples: Int[Array, "B g"],
    key: Key[Array, ""], temperature: Float[Array, ""], *, max_new_tokens: int, drawing: Drawing,
) -> Decoded:  # fmt: skip
    """Decodes B blocks of g rollouts.

    Args:
      prompts, prompt_lengths, prompt_ids: right-padded tokens, lengths, and names for the random keys.
      owners: each block's prompt among those of its device; None where block i is of prompt i.
      samples: the number of each rollout in its group, for the random keys; below 0 is padding.
    """
    c, T = model.config, max_new_tokens
    B, g = samples.shape
    layers = [jax.tree.map(lambda a, i=i: a[i], params["layers"]) for i in range(c.num_hidden_layers)]
    hidden, prefixes = prefill(c, params, layers, prompts, prompt_lengths)
    if owners is not None:
        shared = (hidden, prefixes, prompt_lengths, prompt_ids)
        hidden, prefixes, prompt_lengths, prompt_ids = jax.tree.map(lambda x: per_block(x, owners), shared)
    uniforms = rollout_uniforms(key, prompt_ids, samples, T)

    def emit(state: _State, hidden: Array, cache: list[KV]) -> _State:
        logits = (hidden @ decoder.output_head(params)).astype(jnp.float32) / temperature
        token, logprob = (x.reshape(B, g) for x in draw(logits, uniforms[..., state.t].ravel(), drawing))
        token, decoded = append(state.decoded, state.t, token, logprob, drawing)
        return _State(state.t + 1, token, decoded, cache)

    def step(state: _State) -> _State:
        return emit(
            state,
            *decode_token(c, params, layers, state.token, prompt_lengths, prefixes, state.cache, state.t - 1),
        )

    def keep_going(state: _State) -> Array:
        return (state.t < T) & ~state.decoded.done.all()

    cache = [KV(*(jnp.zeros((B, g, max(T - 1, 1), *a.shape[3:]), a.dtype) for a in p.kv)) for p in prefixes]
    state = _State(jnp.int32(0), jnp.zeros((B, g), jnp.int32), empty(samples, T, drawing.pad_id), cache)
    return jax.lax.while_loop(keep_going, step, emit(state, jnp.repeat(hidden, g, 0), cache)).decoded


def empty(samples: Int[Array, "B g"], length: int, pad_id: int) -> Decoded:
    """No tokens yet; padding is done from the start."""
    shape = (*samples.shape, length)
    return Decoded(
        jnp.full(shape, pad_id, jnp.int32), jnp.zeros(shape), jnp.zeros(samples.shape, jnp.int32), samples < 0
    )


def draw(
    logits: Float[Array, "R V"], uniforms: Float[Array, " R"], drawing: Drawing
) -> tuple[Int[Array, " R"], Float[Array, " R"]]:
    """The next token of every row, and its log-probability over the whole vocabulary."""
    if drawing.greedy:
        token = jnp.argmax(logits, -1).astype(jnp.int32)
    else:
        token = inverse_cdf(restrict(logits, drawing.top_k, drawing.top_p), uniforms)
    return token, jnp.take_along_axis(logits, token[:, None], -1)[:, 0] - jax.nn.logsumexp(logits, -1)


def append(
    decoded: Decoded, t: Int[Array, ""], token: Int[Array, "B g"], logprob: Float[Array, "B g"], drawing: Drawing
) -> tuple[Int[Array, "B g"], Decoded]:
    """Writes token t of every rollout that is not done, and padding into the others. Returns what was written."""
    token, logprob = jnp.where(decoded.done, drawing.pad_id, token), jnp.where(decoded.done, 0.0, logprob)
    return token, Decoded(
        jax.lax.dynamic_update_index_in_dim(decoded.tokens, token, t, 2),
        jax.lax.dynamic_update_index_in_dim(decoded.logprobs, logprob, t, 2),
        decoded.lengths + ~decoded.done,
        decoded.done | jnp.isin(token, jnp.array(drawing.eos_ids, jnp.int32)),
    )


def prefill(
    c: ModelConfig, params: Params, layers: list[Params], prompts: Int[Array, "P S"], prompt_lengths: Int[Array, " P"]
) -> tuple[Float[Array, "P D"], list[Prefix]]:
    """The hidden state after each prompt's last token, and every layer's prompt keys and values."""
    S = prompts.shape[1]
    angles, mask = decoder.rope_angles(c, jnp.arange(S)[None, None]), decoder.causal(S)
    valid = jnp.arange(S) < jnp.maximum(prompt_lengths, 1)[:, None]
    x, prefixes = params["embed"][prompts][:, None], []
    for w in layers:
        x, kv = decoder.layer(c, w, x, angles, mask)
        prefixes.append(Prefix(kv, valid))
    last = jnp.maximum(prompt_lengths - 1, 0)
    x = jnp.take_along_axis(x[:, 0], last[:, None, None], axis=1)[:, 0]
    return decoder.rms_norm(x, params["final_norm"], c.rms_norm_eps), prefixes


def decode_token(
    c: ModelConfig, params: Params, layers: list[Params], tokens: Int[Array, "B g"], prompt_lengths: Int[Array, " B"],
    prefixes: list[Prefix], cache: list[KV], t: Int[Array, ""],
) -> tuple[Float[Array, "R D"], list[KV]]:  # fmt: skip
    """Run completion token t of every rollout through the layers: the hidden state after it, the grown cache."""
    B, g = tokens.shape
    angles = decoder.rope_angles(c, (prompt_lengths + t)[:, None, None])
    mask = (jnp.arange(cache[0].k.shape[2]) <= t)[None, None, None]
    x, grown = params["embed"][tokens][:, :, None], []
    for w, kv, prefix in zip(layers, cache, prefixes, strict=True):
        q, new = decoder.layer_qkv(c, w, x, angles)
        kv = KV(*(jax.lax.dynamic_update_slice_in_dim(a, b, t, axis=2) for a, b in zip(kv, new, strict=True)))
        x = decoder.layer_output(c, w, x, decoder.attend(q, kv, mask, prefix))
        grown.append(kv)
    return decoder.rms_norm(x.reshape(B * g, -1), params["final_norm"], c.rms_norm_eps), grown
