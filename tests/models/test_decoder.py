import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.models.decoder import Decoder, ModelConfig, RopeScaling, Weight, init_params, model_weights

PLAIN = ModelConfig(
    vocab_size=11,
    hidden_size=12,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,  # heads x head_dim differs from hidden_size
    rms_norm_eps=1e-2,
)
SCALED = dataclasses.replace(PLAIN, rope_theta=500.0, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 64))
VARIANTS = {
    "plain": PLAIN,
    "attention_bias": dataclasses.replace(PLAIN, attention_bias=True),
    "qk_norm": dataclasses.replace(PLAIN, qk_norm=True),
    "tied": dataclasses.replace(PLAIN, tie_word_embeddings=True),
    "llama3_rope": SCALED,
    "everything": dataclasses.replace(SCALED, attention_bias=True, qk_norm=True, tie_word_embeddings=True),
}


def random_params(config: ModelConfig):
    """Random in every entry, norms and biases too."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda w: jnp.asarray(rng.normal(0.1, 0.5, w.shape), jnp.float32),
        model_weights(config),
        is_leaf=lambda x: isinstance(x, Weight),
    )


# ---------------------------------------------------------------- the maths, in float64, a token and a head at a time


def norm(x, scale, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


def wavelength_scaled(freq, s: RopeScaling):
    """Llama 3: long waves slowed by `factor`, short ones kept, a linear blend between (by wavelength in tokens)."""
    wavelength = 2 * math.pi / freq
    if wavelength < s.original_max_position_embeddings / s.high_freq_factor:
        return freq
    if wavelength > s.original_max_position_embeddings / s.low_freq_factor:
        return freq / s.factor
    turns = s.original_max_position_embeddings / wavelength
    smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    return (1 - smooth) * freq / s.factor + smooth * freq


def frequencies(c: ModelConfig):
    freqs = [c.rope_theta ** (-2 * i / c.head_dim) for i in range(c.head_dim // 2)]
    return np.array([f if c.rope_scaling is None else wavelength_scaled(f, c.rope_scaling) for f in freqs])


def rotated(x, positions, c: ModelConfig):
    """Dimensions i and i + h/2 as one complex number, turned by position x frequency. x: [T, heads, h]."""
    real, imaginary = np.split(x, 2, axis=-1)
    turned = (real + 1j * imaginary) * np.exp(1j * np.outer(positions, frequencies(c)))[:, None]
    return np.concatenate([turned.real, turned.imag], -1)


def attention(q, k, v):
    """Query head j reads key/value head j // (H / K); token t sees tokens 0..t."""
    T, H, h = q.shape
    out = np.empty_like(q)
    for t in range(T):
        for j in range(H):
            g = j // (H // k.shape[1])
            scores = np.exp(k[: t + 1, g] @ q[t, j] / math.sqrt(h))
            out[t, j] = scores / scores.sum() @ v[: t + 1, g]
    return out.reshape(T, H * h)


def numpy_logits(c: ModelConfig, params, tokens, positions):
    """One row [T] -> logits [T, V]."""
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    x = p["embed"][tokens]
    for i in range(c.num_hidden_layers):
        w = {name: stacked[i] for name, stacked in p["layers"].items()}
        y = norm(x, w["attn_norm"], c.rms_norm_eps)
        q, k, v = ((y @ w[n] + w.get(f"{n}_bias", 0)).reshape(len(x), -1, c.head_dim) for n in "qkv")
        if c.qk_norm:
            q, k = norm(q, w["q_norm"], c.rms_norm_eps), norm(k, w["k_norm"], c.rms_norm_eps)
        x = x + attention(rotated(q, positions, c), rotated(k, positions, c), v) @ w["o"]
        y = norm(x, w["mlp_norm"], c.rms_norm_eps)
        gate = y @ w["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["up"])) @ w["down"]
    head = p["embed"].T if c.tie_word_embeddings else p["lm_head"]
    return norm(x, p["final_norm"], c.rms_norm_eps) @ head


TOKENS = np.random.default_rng(1).integers(0, PLAIN.vocab_size, (2, 7))


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_logits_equal_a_float64_reimplementation(config):
    params = random_params(config)
    logits = jax.jit(Decoder(config).apply)({"params": params}, jnp.asarray(TOKENS))
    expected = [numpy_logits(config, params, row, np.arange(7)) for row in TOKENS]
    np.testing.assert_allclose(logits, expected, rtol=2e-4, atol=2e-4)


def test_the_llama3_case_covers_all_three_frequency_bands():
    scaled = dataclasses.replace(SCALED, head_dim=6)
    ratio = frequencies(scaled) / frequencies(dataclasses.replace(scaled, rope_scaling=None))
    assert ratio[0] == 1
    assert 1 / 8 < ratio[1] < 1
    assert ratio[2] == 1 / 8


def test_positions_may_be_given():
    positions = np.array([[3, 4, 5, 9, 10, 11, 40], [0, 1, 2, 3, 5, 6, 7]])
    params = random_params(PLAIN)
    logits = jax.jit(Decoder(PLAIN).apply)({"params": params}, jnp.asarray(TOKENS), jnp.asarray(positions))
    expected = [numpy_logits(PLAIN, params, *row) for row in zip(TOKENS, positions, strict=True)]
    np.testing.assert_allclose(logits, expected, rtol=2e-4, atol=2e-4)


def test_logits_ignore_right_padding_and_the_other_rows():
    config = VARIANTS["everything"]
    apply, params = jax.jit(Decoder(config).apply), random_params(config)
    batch = jnp.asarray(np.tile(TOKENS, (2, 2)))
    for row, length in enumerate([1, 7, 5, 14]):
        alone = apply({"params": params}, batch[row : row + 1, :length])
        together = apply({"params": params}, batch.at[row, length:].set(0))
        np.testing.assert_allclose(together[row, :length], alone[0], rtol=1e-5, atol=1e-5)


def test_a_logit_depends_only_on_its_own_and_earlier_tokens():
    """d logits[t] / d embedding of token u is 0 for u > t and not 0 for u <= t."""
    params = random_params(PLAIN)  # untied: the embedding is only an input
    tokens = jnp.arange(6)[None]  # all different, so that row u of the embedding is token u's
    direction = jax.random.normal(jax.random.key(0), (PLAIN.vocab_size,))

    def outputs(embed):
        return Decoder(PLAIN).apply({"params": params | {"embed": embed}}, tokens)[0] @ direction

    jacobian = jax.jit(jax.jacrev(outputs))(params["embed"])  # [t, V, D]
    depends = np.abs(jacobian[:, :6]).max(-1) > 0
    np.testing.assert_array_equal(depends, np.tril(np.ones((6, 6), bool)))


# ---------------------------------------------------------------- groups that share a prompt

PROMPT_LENGTHS = np.array([1, 4, 3])


def grouped_rows():
    """Prompts [3, 4] with garbage after their lengths, completions [3, 2, 3], and the same as plain rows [6, 7]."""
    rng = np.random.default_rng(2)
    prompts, completions = rng.integers(0, 11, (3, 4)), rng.integers(0, 11, (3, 2, 3))
    rows = np.zeros((3, 2, 7), int)
    for p, length in enumerate(PROMPT_LENGTHS):
        rows[p, :, :length] = prompts[p, :length]
        rows[p, :, length : length + 3] = completions[p]
    return prompts, completions, rows.reshape(6, 7)


def test_group_hidden_equals_hidden_on_concatenated_rows():
    """Values, and gradients with respect to every parameter; one side under remat, which must change nothing."""
    config = VARIANTS["everything"]
    params = random_params(config)
    prompts, completions, rows = map(jnp.asarray, grouped_rows())
    predictors = jnp.repeat(jnp.asarray(PROMPT_LENGTHS), 2)[:, None] - 1 + jnp.arange(3)
    direction = jax.random.normal(jax.random.key(1), (3, 2, 3, config.hidden_size))

    def shared(params):
        arguments = prompts, jnp.asarray(PROMPT_LENGTHS), completions
        hidden = Decoder(config, remat="full").apply({"params": params}, *arguments, method="group_hidden")
        return (hidden * direction).sum(), hidden

    def separate(params):
        hidden = Decoder(config).apply({"params": params}, rows, method="hidden")
        hidden = jnp.take_along_axis(hidden, predictors[..., None], axis=1).reshape(direction.shape)
        return (hidden * direction).sum(), hidden

    (_, hidden), grads = jax.jit(jax.value_and_grad(shared, has_aux=True))(params)
    (_, expected), expected_grads = jax.jit(jax.value_and_grad(separate, has_aux=True))(params)
    np.testing.assert_allclose(hidden, expected, rtol=1e-4, atol=1e-5)
    for (path, g), e in zip(jax.tree.leaves_with_path(grads), jax.tree.leaves(expected_grads), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-3, atol=1e-4, err_msg=jax.tree_util.keystr(path))


def test_group_hidden_of_one_token_completions():
    """The first completion token is predicted by the prompt's last one."""
    model, params = Decoder(PLAIN), random_params(PLAIN)
    prompts, completions, _ = map(jnp.asarray, grouped_rows())
    arguments = prompts, jnp.asarray(PROMPT_LENGTHS), completions[..., :1]
    hidden = model.apply({"params": params}, *arguments, method="group_hidden")
    full = model.apply({"params": params}, prompts, method="hidden")
    for p, length in enumerate(PROMPT_LENGTHS):
        np.testing.assert_allclose(hidden[p, :, 0], np.stack([full[p, length - 1]] * 2), rtol=1e-4, atol=1e-5)


def test_remat_marks_every_layer_for_recomputation():
    def gradient_program(model):
        gradient = jax.grad(lambda params: model.apply({"params": params}, jnp.asarray(TOKENS)).sum())
        return str(jax.make_jaxpr(gradient)(random_params(PLAIN)))

    assert "remat" in gradient_program(Decoder(PLAIN, remat="full"))
    assert "remat" not in gradient_program(Decoder(PLAIN))


# ---------------------------------------------------------------- initial values


DEEP = ModelConfig(64, 128, 256, 8, 4, 4, 32, attention_bias=True, qk_norm=True)


def test_initial_weights_keep_activations_of_order_one():
    """Matrices have std 1/sqrt(fan-in), those that write to the residual stream 1/sqrt(2 L) of that."""
    params = init_params(Decoder(DEEP), jax.random.key(0))
    layers = params["layers"]
    for name in ("q", "k", "v", "gate", "up", "o", "down"):
        fan_in = layers[name].shape[1]
        expected = fan_in**-0.5 / (4 if name in ("o", "down") else 1)
        assert float(layers[name].std()) == pytest.approx(expected, rel=0.05), name
    assert all((layers[name] == 1).all() for name in ("attn_norm", "mlp_norm", "q_norm", "k_norm"))
    assert all((layers[name] == 0).all() for name in ("q_bias", "k_bias", "v_bias"))
    logits = jax.jit(Decoder(DEEP).apply)({"params": params}, jnp.arange(48).reshape(4, 12))
    assert 0.3 < float(logits.std()) < 3


def test_initial_layers_differ_and_follow_the_key():
    first, second = (init_params(Decoder(DEEP), jax.random.key(seed)) for seed in (0, 1))
    assert not np.allclose(first["layers"]["q"][0], first["layers"]["q"][1])
    assert not np.allclose(first["layers"]["k"], first["layers"]["v"])
    assert not np.allclose(first["embed"], second["embed"])


def test_bfloat16_weights_give_float32_logits():
    params = init_params(Decoder(DEEP), jax.random.key(0), "bfloat16")
    assert {a.dtype for a in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    logits = jax.eval_shape(Decoder(DEEP).apply, {"params": params}, jnp.asarray(TOKENS))
    assert logits.dtype == jnp.float32
