"""The sampler: prefill each prompt once, then decode its n rollouts together in one jitted loop."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from pods_jax.models import decoder
from pods_jax.models.decoder import KV, Decoder, ModelConfig, Params, Prefix
from pods_jax.rollout.buckets import pad_prompts
from pods_jax.rollout.draw import inverse_cdf, restrict, rollout_uniforms


class Completions(NamedTuple):
    """What the sampler returns, for P prompts with n rollouts of at most T tokens.

    Attributes:
      tokens: [P, n, T] token ids; the first `lengths` of a row count, the rest is padding.
      logprobs: [P, n, T] log-probabilities of the tokens at the sampling temperature, over the full vocabulary.
      lengths: [P, n] in 0..T, the end-of-sequence token counted.
      truncated: [P, n] whether the row reached T without an end-of-sequence token.
    """

    tokens: Int[Array, "P n T"]
    logprobs: Float[Array, "P n T"]
    lengths: Int[Array, "P n"]
    truncated: Bool[Array, "P n"]


def generate(
    model: Decoder,
    params: Params,
    prompts: Sequence[Sequence[int]],
    *,
    num_generations: int,
    max_new_tokens: int,
    key: Key[Array, ""],
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    eos_ids: Sequence[int] = (),
    pad_id: int = 0,
    prompt_ids: Sequence[int] | None = None,
    sharding: jax.sharding.Sharding | None = None,
) -> Completions:
    """n completions of every prompt.

    A rollout depends on (key, prompt id, its index in the group) and the parameters, not on the other rows, padding or
    devices; shapes are bucketed, so that few programs are compiled.

    Args:
      prompts: token ids, no padding; at least one token each.
      num_generations: n, rollouts of each prompt.
      max_new_tokens: T.
      temperature: 0 takes the most probable token.
      top_k, top_p: 0 and 1.0 switch them off. `logprobs` stay those of the full distribution.
      eos_ids: tokens that end a completion.
      prompt_ids: names of the prompts for the random keys (default 0, 1, ...).
      sharding: where prompts are placed (default: the first device); see `pods_jax.parallel.batch_sharding`.
    """
    num_prompts = len(prompts)
    ids = np.arange(num_prompts) if prompt_ids is None else np.asarray(prompt_ids)
    tokens, lengths = pad_prompts(prompts, pad_id, 1 if sharding is None else _rows(sharding))
    ids = np.concatenate([ids, np.zeros(len(tokens) - num_prompts, ids.dtype)]).astype(np.uint32)
    arrays = jax.device_put((tokens, lengths, ids), sharding)
    completions = _generate(
        model,
        params,
        *arrays,
        key,
        jnp.float32(temperature or 1.0),
        num_generations=num_generations,
        max_new_tokens=max_new_tokens,
        greedy=temperature == 0,
        top_k=top_k,
        top_p=top_p,
        eos_ids=tuple(eos_ids),
        pad_id=pad_id,
    )
    return jax.tree.map(lambda x: x[:num_prompts], completions) if len(tokens) > num_prompts else completions


def _rows(sharding: jax.sharding.NamedSharding) -> int:
    """How many devices split the leading axis."""
    axes = sharding.spec[0] if sharding.spec else ()
    return int(np.prod([sharding.mesh.shape[a] for a in (axes if isinstance(axes, tuple) else (axes,))]))


@functools.partial(
    jax.jit,
    static_argnames=("model", "num_generations", "max_new_tokens", "greedy", "top_k", "top_p", "eos_ids", "pad_id"),
)
def _generate(
    model, params, prompts, prompt_lengths, prompt_ids, key, temperature,
    *, num_generations, max_new_tokens, greedy, top_k, top_p, eos_ids, pad_id,
):  # fmt: skip
    c, n, T = model.config, num_generations, max_new_tokens
    P = prompts.shape[0]
    layers = [jax.tree.map(lambda a, i=i: a[i], params["layers"]) for i in range(c.num_hidden_layers)]
    uniforms = rollout_uniforms(key, prompt_ids, jnp.arange(n), T)

    def draw(hidden, t):
        """Token t of every row, and its log-probability at the sampling temperature."""
        logits = (hidden @ decoder.output_head(params)).astype(jnp.float32) / temperature
        if greedy:
            token = jnp.argmax(logits, -1).astype(jnp.int32)
        else:
            token = inverse_cdf(restrict(logits, top_k, top_p), uniforms[..., t].ravel())
        logprob = jnp.take_along_axis(logits, token[:, None], -1)[:, 0] - jax.nn.logsumexp(logits, -1)
        return token.reshape(P, n), logprob.reshape(P, n)

    def emit(state, hidden, cache):
        """Draws the next token from the hidden state before it; rows that are done stay as they are."""
        token, logprob = draw(hidden, state.t)
        token, logprob = jnp.where(state.done, pad_id, token), jnp.where(state.done, 0.0, logprob)
        tokens = jax.lax.dynamic_update_index_in_dim(state.tokens, token, state.t, 2)
        logprobs = jax.lax.dynamic_update_index_in_dim(state.logprobs, logprob, state.t, 2)
        done = state.done | jnp.isin(token, jnp.array(eos_ids, jnp.int32))
        return _State(state.t + 1, token, tokens, logprobs, state.lengths + ~state.done, done, cache)

    def keep_going(state):
        return (state.t < T) & ~state.done.all()

    def step(state):
        hidden, cache = decode_token(c, params, layers, state.token, prompt_lengths, prefixes, state.cache, state.t - 1)
        return emit(state, hidden, cache)

    hidden, prefixes = prefill(c, params, layers, prompts, prompt_lengths)
    cache = [KV(*(jnp.zeros((P, n, max(T - 1, 1), *a.shape[3:]), a.dtype) for a in prefix.kv)) for prefix in prefixes]
    state = _State(
        t=jnp.int32(0),
        token=jnp.full((P, n), pad_id),
        tokens=jnp.full((P, n, T), pad_id),
        logprobs=jnp.zeros((P, n, T)),
        lengths=jnp.zeros((P, n), jnp.int32),
        done=jnp.broadcast_to((prompt_lengths == 0)[:, None], (P, n)),
        cache=cache,
    )
    state = jax.lax.while_loop(keep_going, step, emit(state, jnp.repeat(hidden, n, 0), cache))
    return Completions(state.tokens, state.logprobs, state.lengths, ~state.done)


class _State(NamedTuple):
    """The decode loop's carry: t tokens are drawn; the last of them, `token` [P, n], is not yet through the layers."""

    t: Array
    token: Array
    tokens: Array
    logprobs: Array
    lengths: Array
    done: Array
    cache: list[KV]


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
    c: ModelConfig, params: Params, layers: list[Params], tokens: Int[Array, "P n"], prompt_lengths: Int[Array, " P"],
    prefixes: list[Prefix], cache: list[KV], t: Int[Array, ""],
) -> tuple[Float[Array, "R D"], list[KV]]:  # fmt: skip
    """Run completion token t of every rollout through the layers: the hidden state after it, the grown cache."""
    P, n = tokens.shape
    angles = decoder.rope_angles(c, (prompt_lengths + t)[:, None, None])
    mask = (jnp.arange(cache[0].k.shape[2]) <= t)[None, None, None]
    x, grown = params["embed"][tokens][:, :, None], []
    for w, kv, prefix in zip(layers, cache, prefixes, strict=True):
        q, new = decoder.layer_qkv(c, w, x, angles)
        kv = KV(*(jax.lax.dynamic_update_slice_in_dim(a, b, t, axis=2) for a, b in zip(kv, new, strict=True)))
        x = decoder.layer_output(c, w, x, decoder.attend(q, kv, mask, prefix))
        grown.append(kv)
    return decoder.rms_norm(x.reshape(P * n, -1), params["final_norm"], c.rms_norm_eps), grown
