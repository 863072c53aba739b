import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.config.schema import PROJECTIONS, LoraConfig
from pods_jax.errors import UserError
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.lora import adapt, init_adapters, merge
from pods_jax.models.quantized import Quantized, quantize
from pods_jax.parallel import make_mesh, replicated
from pods_jax.planning.chips import topology_devices
from pods_jax.planning.memory_traffic import moved_bytes
from pods_jax.rollout import generate

CONFIG = ModelConfig(19, 64, 128, 2, 4, 2, 16)
MODEL, LORA = Decoder(CONFIG), LoraConfig(rank=3, alpha=6.0)
TOKENS = jnp.arange(16).reshape(2, 8)


def test_without_qwix_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "qwix", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[quantize\]'"):
        quantize(init_params(MODEL, jax.random.key(0)), "int8")


def test_rows_that_do_not_fill_blocks_are_refused():
    pytest.importorskip("qwix", reason="the quantize extra is not installed")
    odd = Decoder(ModelConfig(19, 48, 128, 2, 4, 2, 16))
    with pytest.raises(UserError, match="the 48 rows of 'q' do not divide"):
        quantize(init_params(odd, jax.random.key(0)), "nf4")


@pytest.mark.parametrize(("kind", "error"), [("int8", 0.01), ("nf4", 0.1)])
def test_a_quantized_base_under_adapters(kind, error):
    """Weights within the format's error (relative RMS of a Gaussian: 0.7 % and 9.2 %); one policy, merged or not."""
    pytest.importorskip("qwix", reason="the quantize extra is not installed")
    params = init_params(MODEL, jax.random.key(0))
    base = quantize(params, kind)
    for name in ("q", "down"):
        exact, stored = params["layers"][name], base["layers"][name]
        assert stored.shape == exact.shape
        relative = jnp.sqrt(jnp.mean((stored.dense() - exact) ** 2) / jnp.mean(exact**2))
        assert error / 2 < relative < error
    adapters = jax.tree.map(lambda x: x + 0.05, init_adapters(CONFIG, LORA, jax.random.key(1)))

    @jax.jit
    def loss(adapters):
        return MODEL.apply({"params": adapt(base, adapters, LORA.scale)}, TOKENS).std()

    value, gradients = jax.value_and_grad(loss)(adapters)
    adapted = adapt(base, adapters, LORA.scale)
    merged = merge(adapted)
    np.testing.assert_allclose(value, MODEL.apply({"params": merged}, TOKENS).std(), rtol=1e-5)
    assert all((x != 0).any() for x in jax.tree.leaves(gradients))
    tokens = [
        generate(MODEL, p, [[1, 2], [3]], num_generations=2, max_new_tokens=8, key=jax.random.key(0)).tokens
        for p in (adapted, merged)
    ]
    np.testing.assert_array_equal(*tokens)


def test_merged_matrices_are_plain_whether_they_are_adapted_or_not():
    pytest.importorskip("qwix", reason="the quantize extra is not installed")
    params = init_params(MODEL, jax.random.key(0))
    some = LoraConfig(rank=3, target_modules=("q_proj", "v_proj"))
    merged = merge(adapt(quantize(params, "int8"), init_adapters(CONFIG, some, jax.random.key(1)), some.scale))
    assert jax.tree.map(jnp.shape, merged) == jax.tree.map(jnp.shape, params)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_code_of_nf4_is_dequantised_as_qwix_does(dtype):
    qwix = pytest.importorskip("qwix", reason="the quantize extra is not installed")
    base = quantize(init_params(MODEL, jax.random.key(0), dtype), "nf4")
    stored = base["layers"]["down"]
    assert set(np.unique(np.asarray(stored.values.qvalue, np.int8))) == set(range(16))
    for matrices in (stored, jax.tree.map(lambda x: x[0], stored)):
        np.testing.assert_array_equal(matrices.dense(), qwix.dequantize(matrices.values))


def test_a_tpu_moves_far_less_than_with_a_table_of_nf4():
    qwix = pytest.importorskip("qwix", reason="the quantize extra is not installed")
    pytest.importorskip("libtpu")
    mesh = make_mesh(devices=topology_devices("v5e:1x1"))
    stacks = jax.eval_shape(lambda: quantize(_layers(2048, 8192), "nf4"))["layers"]["q"]
    stored = jax.eval_shape(lambda q: jax.tree.map(lambda x: x[0], q), stacks)
    x = jax.ShapeDtypeStruct((32, 2048), "bfloat16")
    shapes = jax.tree.map(lambda x: x.update(sharding=replicated(mesh)), (x, stored))

    def moved(dense):
        product = jax.jit(lambda x, stored: x @ dense(stored).astype(x.dtype))
        return moved_bytes(product.lower(*shapes).compile().as_text())

    assert 5 * moved(Quantized.dense) < moved(lambda stored: qwix.dequantize(stored.values))


def _layers(rows, columns):
    """One layer whose seven projections are alike."""
    names = (projection.removesuffix("_proj") for projection in PROJECTIONS)
    return {"layers": {name: jnp.zeros((1, rows, columns), "bfloat16") for name in names}}
