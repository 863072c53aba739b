"""The implementations of attention against one in float64, a token and a head at a time."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as Spec

from pods_jax.config.schema import LoraConfig
from pods_jax.models import attention
from pods_jax.models.attention import KV, Prefix, attend
from pods_jax.models.decoder import Decoder, ModelConfig, RopeScaling, init_params, is_weight, model_weights
from pods_jax.models.lora import adapt, adapter_weights
from pods_jax.parallel.mesh import AXES

P, N, T, K, G, HEAD, S = 2, 3, 21, 2, 2, 8, 13
LENGTHS = np.array([5, 13])
SMALL = {
    "chunked": lambda *a: attention.chunked(*a, size=8),
    "chunked, uneven": lambda *a: attention.chunked(*a, size=5),
}
WAYS = {name: attention.IMPLEMENTATIONS[name] for name in ("whole", "splash")} | SMALL
WAYS["dot_product_attention"] = lambda q, own, prefix, _: attention._dot_product_attention(q, own, prefix, "xla")


def inputs(dtype=jnp.float32, spread=1.0):
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape) * spread, dtype)

    own = KV(normal(P, N, T, K, HEAD), normal(P, N, T, K, HEAD))
    prompt = KV(normal(P, 1, S, K, HEAD), normal(P, 1, S, K, HEAD))
    return normal(P, N, T, K * G, HEAD), own, Prefix(prompt, jnp.arange(S) < LENGTHS[:, None])


def expected(q, own, prefix):
    """Query head j reads key head j // G; token t of a rollout sees the prompt's tokens and its own 0 to t."""
    q, (k, v), (kp, vp) = jax.tree.map(lambda x: np.asarray(x, np.float64), (q, own, prefix.kv if prefix else own))
    out = np.empty(q.shape)
    for p, n, t, j in np.ndindex(q.shape[:-1]):
        keys, values = k[p, n, : t + 1, j // G], v[p, n, : t + 1, j // G]
        if prefix is not None:
            length = LENGTHS[p]
            keys = np.concatenate([kp[p, 0, :length, j // G], keys])
            values = np.concatenate([vp[p, 0, :length, j // G], values])
        scores = keys @ q[p, n, t, j] * HEAD**-0.5
        weights = np.exp(scores - scores.max())
        out[p, n, t, j] = weights @ values / weights.sum()
    return out


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setitem(attention.IMPLEMENTATIONS, "tried", WAYS[request.param])
    return "tried"


@pytest.mark.parametrize("with_prompt", [True, False])
def test_attention_is_that_of_one_token_and_head_at_a_time(way, with_prompt):
    q, own, prefix = inputs()
    prefix = prefix if with_prompt else None
    np.testing.assert_allclose(attend(q, own, prefix, way), expected(q, own, prefix), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("with_prompt", [True, False])
def test_gradients_are_those_of_whole_scores(way, with_prompt):
    q, own, prefix = inputs()
    direction = jnp.asarray(np.random.default_rng(1).normal(size=q.shape), jnp.float32)

    def gradients(implementation):
        def loss(q, own, prompt):
            given = Prefix(prompt, prefix.valid) if with_prompt else None
            return (attend(q, own, given, implementation) * direction).sum()

        return jax.jit(jax.grad(loss, (0, 1, 2)))(q, own, prefix.kv)

    for a, b in zip(*(jax.tree.leaves(gradients(name)) for name in (way, "whole")), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_prompt_of_no_tokens_is_not_seen(way):
    """As padding groups have it: values and gradients are those without a prompt."""
    q, own, prefix = inputs()
    empty = prefix._replace(valid=jnp.zeros_like(prefix.valid))

    def loss(q, prefix):
        return attend(q, own, prefix, way).sum()

    for a, b in zip(*(jax.value_and_grad(loss)(q, given) for given in (empty, None)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_scores_of_bfloat16_are_not_rounded(way):
    """With peaky scores of some 60, whose bfloat16 are 0.25 apart, weights would be off by a tenth."""
    q, own, prefix = inputs(jnp.bfloat16, spread=5.0)
    scaled = (q * HEAD**-0.5).astype(jnp.float32) * HEAD**0.5
    reference = expected(scaled, own, prefix)
    errors = np.abs(np.asarray(attend(q, own, prefix, way), np.float64) - reference)
    assert attend(q, own, prefix, way).dtype == jnp.bfloat16
    assert errors.mean() < 0.004 * np.abs(reference).mean()


def test_auto_is_the_kernel_of_the_devices():
    q, own, prefix = inputs()
    np.testing.assert_array_equal(attend(q, own, prefix, "auto"), attend(q, own, prefix, "chunked"))


@pytest.mark.parametrize("implementation", ["chunked", "splash"])
def test_a_mesh_changes_nothing(implementation, monkeypatch):
    """(The kernel runs in a map over the mesh's devices.)"""
    monkeypatch.setattr(attention, "CHUNKS", (8, 8))
    mesh = jax.make_mesh((1, 1, 1), AXES, axis_types=(AxisType.Auto,) * 3, devices=jax.devices()[:1])
    sharding = NamedSharding(mesh, Spec(("data", "fsdp")))
    q, own, prefix = inputs()
    found = jax.jit(attend, static_argnums=(3, 4))(q, own, prefix, implementation, sharding)
    np.testing.assert_allclose(found, expected(q, own, prefix), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- in the decoder

LLAMA = ModelConfig(11, 16, 20, 2, 4, 2, 6, rms_norm_eps=1e-2)
FAMILIES = {
    "llama": dataclasses.replace(LLAMA, rope_theta=500.0, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 64)),
    "qwen2": dataclasses.replace(LLAMA, attention_bias=True, tie_word_embeddings=True),
    "qwen3": dataclasses.replace(LLAMA, qk_norm=True),
}


def random_params(config):
    rng = np.random.default_rng(0)
    weights = model_weights(config)
    return jax.tree.map(lambda w: jnp.asarray(rng.normal(0.1, 0.5, w.shape), jnp.float32), weights, is_leaf=is_weight)


def grouped():
    rng = np.random.default_rng(2)
    prompts, completions = rng.integers(0, 11, (P, S)), rng.integers(0, 11, (P, 2, T))
    return tuple(map(jnp.asarray, (prompts, LENGTHS, completions)))


def value_and_gradients(model, params, trained, through):
    direction = jax.random.normal(jax.random.key(1), (P, 2, T, model.config.hidden_size))

    def loss(trained):
        hidden = model.apply({"params": through(params, trained)}, *grouped(), method="group_hidden")
        return (hidden * direction).sum(), hidden

    (_, hidden), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(trained)
    return jax.tree.leaves((hidden, grads))


@functools.cache
def of_family(family, **options):
    params = random_params(FAMILIES[family])
    return value_and_gradients(Decoder(FAMILIES[family], **options), params, params, lambda _, p: p)


@pytest.mark.parametrize(
    ("family", "implementation", "remat"),
    [(family, implementation, "full") for family in FAMILIES for implementation in ("chunked", "splash")]
    + [("llama", "chunked", "none"), ("llama", "chunked", "dots_saveable")],
)
def test_every_family_is_the_same_under_every_implementation(family, implementation, remat, monkeypatch):
    monkeypatch.setattr(attention, "CHUNKS", (8, 8))
    found = of_family(family, attention=implementation, remat=remat)
    for a, b in zip(found, of_family(family, attention="whole"), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_lora_is_the_same_in_chunks(monkeypatch):
    monkeypatch.setattr(attention, "CHUNKS", (8, 8))
    config, lora = FAMILIES["qwen2"], LoraConfig(rank=2, alpha=4.0)
    rng = np.random.default_rng(3)
    adapters = jax.tree.map(
        lambda w: jnp.asarray(rng.normal(0, 0.3, w.shape), jnp.float32),
        adapter_weights(config, lora),
        is_leaf=is_weight,
    )
    params = random_params(config)
    ways = Decoder(config, remat="full"), Decoder(config, attention="whole")
    both = (value_and_gradients(m, params, adapters, lambda base, a: adapt(base, a, lora.scale)) for m in ways)
    for a, b in zip(*both, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_bfloat16_is_as_near_to_float32_in_chunks_as_at_once(monkeypatch):
    monkeypatch.setattr(attention, "CHUNKS", (8, 8))
    config = FAMILIES["llama"]
    params = init_params(Decoder(config), jax.random.key(0))
    exact = value_and_gradients(Decoder(config), params, params, lambda _, p: p)

    def error(implementation):
        model = Decoder(config, attention=implementation, compute_dtype="bfloat16")
        found = value_and_gradients(model, params, params, lambda _, p: p)
        pairs = [(a, b) for a, b in zip(found, exact, strict=True) if b.any()]  # the head has no gradient here
        return sum(float(jnp.square(a - b).sum() / jnp.square(b).sum()) for a, b in pairs)

    assert error("chunked") < 1.5 * error("whole")


# ---------------------------------------------------------------- what is held


def temporaries(length, implementation, remat="none"):
    """Bytes beside arguments and results of one layer's gradient, with 1 rollout of so many tokens."""
    config = ModelConfig(16, 64, 64, 1, 4, 2, 16)
    model, params = (
        Decoder(config, attention=implementation, remat=remat),
        init_params(Decoder(config), jax.random.key(0)),
    )
    shapes = (1, 64), (1,), (1, 1, length)
    arrays = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes]

    def loss(params, *arrays):
        return model.apply({"params": params}, *arrays, method="group_hidden").sum()

    return jax.jit(jax.grad(loss)).lower(params, *arrays).compile().memory_analysis().temp_size_in_bytes


def test_memory_grows_with_the_length_and_not_with_its_square():
    one, two = (temporaries(length, "chunked") for length in (1024, 2048))
    assert two < 2.5 * one
    assert two < temporaries(2048, "whole") / 8


def test_remat_does_not_compute_a_long_attention_again():
    """Its loops over earlier keys are two, of the forward and of the backward pass, as without remat."""

    def loops(remat):
        config = ModelConfig(16, 16, 16, 1, 2, 1, 8)
        model, params = Decoder(config, remat=remat), init_params(Decoder(config), jax.random.key(0))
        arrays = jnp.zeros((1, 4), int), jnp.full(1, 4), jnp.zeros((1, 1, 512), int)

        def loss(params):
            return model.apply({"params": params}, *arrays, method="group_hidden").sum()

        return str(jax.make_jaxpr(jax.grad(loss))(params)).count(" while[")

    assert loops("full") == loops("none") == 2
