"""The decoder: one Llama-style transformer; model families differ only in the numbers of `ModelConfig`.

The weights of all layers are stacked along a leading axis L, so that training scans over them and decoding slices them
once, before its loop. Every computation is a pure function of (config, weights, arrays); `Decoder` is the Linen module
that declares the weights and names the entry points.

Shapes: P prompts, n rollouts of a prompt, T tokens of each, S prompt tokens, D hidden_size, H query heads, K key/value
heads, h head_dim, F intermediate_size, V vocab_size. A plain batch of rows is the case n = 1.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pods_jax.models.attention import KV, SAVED, Prefix, attend

Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Llama 3's frequency scaling (`rope_type: llama3` in Hugging Face configs)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Hashable facts of a model, under their Hugging Face names."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False  # biases on q, k and v only, as Qwen2 has them
    qk_norm: bool = False  # RMSNorm on each query and key head, as Qwen3 has it
    max_position_embeddings: int = 2048


class Weight(NamedTuple):
    """One declaration gives a weight's shape, its logical axes (for sharding) and its initial values."""

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    init: Callable


def is_weight(x: Any) -> bool:
    """For `is_leaf` in maps over trees of declarations."""
    return isinstance(x, Weight)


def _normal(std: float) -> Callable:
    return nn.initializers.normal(std)


def layer_weights(c: ModelConfig) -> dict[str, Weight]:
    """The weights of one layer (unstacked)."""
    d = c.hidden_size
    f = c.intermediate_size
    q = c.num_attention_heads * c.head_dim
    kv = c.num_key_value_heads * c.head_dim
    out_scale = 1 / math.sqrt(2 * c.num_hidden_layers)  # keeps the residual stream's size independent of depth (GPT-2)
    weights = {
        "attn_norm": Weight((d,), (None,), nn.initializers.ones),
        "q": Weight((d, q), ("embed", "heads"), _normal(d**-0.5)),
        "k": Weight((d, kv), ("embed", "heads"), _normal(d**-0.5)),
        "v": Weight((d, kv), ("embed", "heads"), _normal(d**-0.5)),
        "o": Weight((q, d), ("heads", "embed"), _normal(out_scale * q**-0.5)),
        "mlp_norm": Weight((d,), (None,), nn.initializers.ones),
        "gate": Weight((d, f), ("embed", "mlp"), _normal(d**-0.5)),
        "up": Weight((d, f), ("embed", "mlp"), _normal(d**-0.5)),
        "down": Weight((f, d), ("mlp", "embed"), _normal(out_scale * f**-0.5)),
    }
    if c.attention_bias:
        weights |= {
            f"{x}_bias": Weight((n,), ("heads",), nn.initializers.zeros) for x, n in (("q", q), ("k", kv), ("v", kv))
        }
    if c.qk_norm:
        weights |= {f"{x}_norm": Weight((c.head_dim,), (None,), nn.initializers.ones) for x in ("q", "k")}
    return weights


def model_weights(c: ModelConfig) -> dict[str, Any]:
    """Every weight of the model, in the shape of the parameter tree; layers carry a leading "layers" axis."""
    stacked = {
        name: Weight((c.num_hidden_layers, *w.shape), ("layers", *w.axes), w.init)
        for name, w in layer_weights(c).items()
    }
    weights = {
        "embed": Weight((c.vocab_size, c.hidden_size), ("vocab", "embed"), _normal(c.hidden_size**-0.5)),
        "layers": stacked,
        "final_norm": Weight((c.hidden_size,), (None,), nn.initializers.ones),
    }
    if not c.tie_word_embeddings:
        weights["lm_head"] = Weight((c.hidden_size, c.vocab_size), ("embed", "vocab"), _normal(c.hidden_size**-0.5))
    return weights


# ---------------------------------------------------------------- pieces


def rms_norm(x: Float[Array, "... D"], scale: Float[Array, " D"], eps: float) -> Float[Array, "... D"]:
    """Root-mean-square normalisation, computed in float32."""
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), -1, keepdims=True) + eps)
    return x32.astype(x.dtype) * scale.astype(x.dtype)


def rope_frequencies(c: ModelConfig) -> Float[Array, " half"]:
    """Rotary frequencies in radians a position, with Llama 3's scaling where the config has it."""
    freqs = c.rope_theta ** (-jnp.arange(0, c.head_dim, 2, dtype=jnp.float32) / c.head_dim)
    s = c.rope_scaling
    if s is None:
        return freqs
    turns = s.original_max_position_embeddings * freqs / (2 * math.pi)  # rotations over the original context
    keep = jnp.clip((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0)
    return keep * freqs + (1 - keep) * freqs / s.factor


def rotate(x: Float[Array, "P n T heads h"], angles: Float[Array, "Pb nb T half"]) -> Float[Array, "P n T heads h"]:
    """Rotary position embedding in the half-split layout of Hugging Face checkpoints."""
    cos, sin = jnp.cos(angles)[..., None, :], jnp.sin(angles)[..., None, :]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def _linear(x: Array, w: Any, bias: Array | None = None) -> Array:
    """x @ w on a two-dimensional view of x, the layout in which XLA's CPU backend is fastest.

    w is a matrix [in, out], or an object that multiplies like one, such as `lora.Adapted`.
    """
    y = x.reshape(-1, x.shape[-1]) @ w
    y = y if bias is None else y + bias
    return y.reshape(*x.shape[:-1], w.shape[-1])


def layer_qkv(c: ModelConfig, w: Params, x: Array, angles: Array) -> tuple[Array, KV]:
    """Normalised, rotated queries [P, n, T, H, h] and keys/values [P, n, T, K, h] of one layer."""
    y = rms_norm(x, w["attn_norm"], c.rms_norm_eps)
    q, k, v = (_linear(y, w[i], w.get(f"{i}_bias")) for i in "qkv")
    q, k, v = (a.reshape(*x.shape[:-1], a.shape[-1] // c.head_dim, c.head_dim) for a in (q, k, v))
    if c.qk_norm:
        q = rms_norm(q, w["q_norm"], c.rms_norm_eps)
        k = rms_norm(k, w["k_norm"], c.rms_norm_eps)
    return rotate(q, angles), KV(rotate(k, angles), v)


def layer_output(c: ModelConfig, w: Params, x: Array, attended: Array) -> Array:
    """The rest of a layer: the attention's output projection and the gated MLP, both residual."""
    x = x + _linear(attended.reshape(*x.shape[:-1], w["o"].shape[0]), w["o"])
    y = rms_norm(x, w["mlp_norm"], c.rms_norm_eps)
    return x + _linear(jax.nn.silu(_linear(y, w["gate"])) * _linear(y, w["up"]), w["down"])


def layer(
    c: ModelConfig, w: Params, x: Array, angles: Array, prefix: Prefix | None = None, **attention: Any
) -> tuple[Array, KV]:
    """One layer over whole sequences x [P, n, T, D]; also returns the layer's keys and values.

    attention: `implementation` and `sharding` of `attention.attend`.
    """
    q, kv = layer_qkv(c, w, x, angles)
    return layer_output(c, w, x, attend(q, kv, prefix, **attention)), kv


def rope_angles(c: ModelConfig, positions: Int[Array, "..."]) -> Array:
    return positions[..., None] * rope_frequencies(c)


def head_logits(params: Params, hidden: Float[Array, "N D"]) -> Float[Array, "N V"]:
    """Logits of the next token: the products have the precision of the hidden states, their sums are float32.

    A tied embedding is multiplied as it is stored, so that neither it nor its gradient is ever transposed.
    """
    return _project(hidden, params["lm_head"], 0) if "lm_head" in params else _project(hidden, params["embed"], 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _project(hidden: Array, head: Array, axis: int) -> Float[Array, "N V"]:
    """hidden [N, D] by a head with D along `axis`; the products of its gradient too have hidden's precision."""
    return _contract(hidden, head.astype(hidden.dtype), 1, axis)


def _project_backward(axis: int, residuals: tuple[Array, Array], logits_bar: Array) -> tuple[Array, Array]:
    hidden, head = residuals
    logits_bar = logits_bar.astype(hidden.dtype)
    hidden_bar = _contract(logits_bar, head.astype(hidden.dtype), 1, 1 - axis)
    head_bar = _contract(logits_bar, hidden, 0, 0) if axis else _contract(hidden, logits_bar, 0, 0)
    return hidden_bar.astype(hidden.dtype), head_bar.astype(head.dtype)


_project.defvjp(lambda hidden, head, axis: (_project(hidden, head, axis), (hidden, head)), _project_backward)


def _contract(a: Array, b: Array, axis_a: int, axis_b: int) -> Array:
    """The product of two matrices over these axes, summed in float32."""
    return jax.lax.dot_general(a, b, (((axis_a,), (axis_b,)), ((), ())), preferred_element_type=jnp.float32)


# ---------------------------------------------------------------- the module

_SAVE_ATTENTION = jax.checkpoint_policies.save_only_these_names(SAVED)


def _and_attention(policy: Callable) -> Callable:
    return jax.checkpoint_policies.save_from_both_policies(policy, _SAVE_ATTENTION)


REMAT = {
    "none": None,
    "full": _SAVE_ATTENTION,
    "dots_with_no_batch_dims_saveable": _and_attention(jax.checkpoint_policies.dots_with_no_batch_dims_saveable),
    "dots_saveable": _and_attention(jax.checkpoint_policies.dots_saveable),
}
"""Policies that say what a layer keeps for its backward pass, from everything to its input only; JAX's names.

All keep the output of an attention that is long enough to be computed in chunks or by a kernel.
"""


class Decoder(nn.Module):
    """A causal language model. `apply({"params": params}, tokens)` gives logits [B, T, V].

    Attributes:
      config: the family's numbers; static and hashable, so a Decoder can be a static argument of `jax.jit`.
      attention: one of `attention.NAMES`.
      remat: one of REMAT; what is not kept is computed again in the backward pass, layer by layer.
      compute_dtype: of activations and of the layers' weights where they multiply; None: as the weights are. Norms,
        softmaxes and logits are float32 in any case, and gradients have the weights' own type.
      activations: how `group_hidden` splits its groups over devices; without it the compiler may choose to split every
        contraction over all devices instead, and to exchange activations rather than weights.
    """

    config: ModelConfig
    attention: str = "chunked"
    remat: str = "none"
    compute_dtype: str | None = None
    activations: jax.sharding.NamedSharding | None = None

    def setup(self):
        def declare(name, w):
            return self.param(name, w.init, w.shape)

        weights = model_weights(self.config)
        layers = weights.pop("layers")
        self.top = {name: declare(name, w) for name, w in weights.items()}
        # A variable, not a `param`, whose check of shapes would refuse the adapted matrices of `lora`.
        self.layers = self.variable("params", "layers", lambda: init_tree(self.make_rng("params"), layers)).value

    def __call__(self, tokens: Int[Array, "B T"], positions: Int[Array, "B T"] | None = None) -> Float[Array, "B T V"]:
        """Logits of the next token at every position. positions default to 0, 1, 2, ..."""
        hidden = self.hidden(tokens, positions)
        return head_logits(self.top, hidden.reshape(-1, hidden.shape[-1])).reshape(*tokens.shape, -1)

    def hidden(self, tokens: Int[Array, "B T"], positions: Int[Array, "B T"] | None = None) -> Float[Array, "B T D"]:
        """Final hidden states (normalised, before the head) of right-padded rows."""
        c = self.config
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape) if positions is None else positions
        angles = rope_angles(c, positions[:, None])

        def body(x, w):
            return self._layer(w, x, angles)[0]

        x = self._scan(body, self._embed(tokens)[:, None])
        return rms_norm(x[:, 0], self.top["final_norm"], c.rms_norm_eps)

    def group_hidden(
        self, prompts: Int[Array, "P S"], prompt_lengths: Int[Array, " P"], completions: Int[Array, "P n T"]
    ) -> Float[Array, "P n T D"]:
        """Hidden states that predict each completion token, every prompt computed once for all its rollouts.

        Entry t predicts completions[..., t], the first from the prompt's last token, the t-th from token t - 1. The
        last token goes through the layers for nothing, so that attention has the round number T of queries.
        Equal to `hidden` on the n concatenated rows, at (S + n T) instead of n (S + T) tokens a group.
        """
        c = self.config
        P, S = prompts.shape
        T = completions.shape[-1]
        angles_p = rope_angles(c, jnp.arange(S)[None, None])
        angles_c = rope_angles(c, prompt_lengths[:, None, None] + jnp.arange(T))
        valid = jnp.arange(S) < prompt_lengths[:, None]

        def body(carry, w):
            x_p, x_c = carry
            x_p, kv = self._layer(w, x_p, angles_p)
            x_c, _ = self._layer(w, x_c, angles_c, Prefix(kv, valid))
            return self._placed((x_p, x_c))

        x_p, x_c = self._scan(body, self._placed((self._embed(prompts)[:, None], self._embed(completions))))
        last = jnp.take_along_axis(x_p[:, 0], (prompt_lengths - 1)[:, None, None], axis=1)  # [P, 1, D]
        last = jnp.broadcast_to(last[:, None], (P, completions.shape[1], 1, c.hidden_size))
        return rms_norm(jnp.concatenate([last, x_c[:, :, :-1]], axis=2), self.top["final_norm"], c.rms_norm_eps)

    def _layer(self, w: Params, x: Array, angles: Array, prefix: Prefix | None = None) -> tuple[Array, KV]:
        how = {"implementation": self.attention, "sharding": self.activations}
        return layer(self.config, w, x, angles, prefix, **how)

    def _placed(self, x: Any) -> Any:
        return x if self.activations is None else jax.lax.with_sharding_constraint(x, self.activations)

    def _embed(self, tokens: Int[Array, "..."]) -> Float[Array, "... D"]:
        return self._computed_in(self.top["embed"][tokens])

    def _computed_in(self, w: Any) -> Any:
        return w if self.compute_dtype is None else w.astype(self.compute_dtype)

    def _scan(self, body: Callable, x: Any) -> Any:
        """x through all layers, whose weights are cast once, before the loop."""
        if self.remat != "none":
            body = jax.checkpoint(body, policy=REMAT[self.remat], prevent_cse=False)
        layers = {name: self._computed_in(w) for name, w in self.layers.items()}
        return jax.lax.scan(lambda carry, w: (body(carry, w), None), x, layers)[0]


@functools.partial(jax.jit, static_argnames="dtype")
def in_dtype(params: Params, dtype: str) -> Params:
    """Parameters in another precision; quantised matrices stay as they are stored."""
    return jax.tree.map(lambda w: w.astype(dtype), params, is_leaf=lambda w: hasattr(w, "astype"))


def init_tree(key: Array, weights: dict[str, Any], dtype: str = "float32") -> Params:
    """Random values for a tree of declarations."""
    declared, tree = jax.tree.flatten(weights, is_leaf=is_weight)
    keys = jax.random.split(key, len(declared))
    return jax.tree.unflatten(tree, [w.init(k, w.shape, dtype) for w, k in zip(declared, keys, strict=True)])


def init_params(model: Decoder, key: Array, dtype: str = "float32") -> Params:
    """Random weights for `model`, as a plain tree of arrays."""
    return init_tree(key, model_weights(model.config), dtype)
