"""The sampler's weights are the policy's, layer by layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.config.schema import LoraConfig
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.lora import Adapted, adapt, init_adapters, merge
from pods_jax.models.quantized import quantize
from pods_jax.rollout import generate, weights
from pods_jax.rollout.weights import sampler_weights, unstacked

MODEL = Decoder(ModelConfig(16, 64, 64, 3, 2, 1, 32))
LORA = LoraConfig(rank=2, target_modules=("q_proj", "down_proj"))


def base(dtype="float32"):
    return init_params(MODEL, jax.random.key(0), dtype)


def adapters():
    """Adapters that change the model: fresh ones do not."""
    return jax.tree.map(lambda x: x + 0.1, init_adapters(MODEL.config, LORA, jax.random.key(1)))


def adapted(of):
    return adapt(of, adapters(), LORA.scale)


def layers_of(params):
    return [jax.tree.map(lambda a, i=i: a[i], params["layers"]) for i in range(MODEL.config.num_hidden_layers)]


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_they_are_the_merged_policy_in_the_given_precision(dtype):
    params = adapted(base())
    expected = jax.tree.map(lambda w: w.astype(dtype or "float32"), merge(params))
    found = sampler_weights(params, dtype)
    assert {name: w for name, w in found.items() if name != "layers"}.keys() == expected.keys() - {"layers"}
    jax.tree.map(np.testing.assert_array_equal, found, {**expected, "layers": layers_of(expected)})


def test_layers_share_a_program_that_makes_no_stack():
    """It returns one layer, in half the bytes, and needs no more than two beside."""
    weights._ready.clear_cache()
    sampler_weights(adapted(base()), "bfloat16")
    assert weights._ready._cache_size() == 1
    program = jax.jit(lambda *trees: weights._ready(adapt(*trees, LORA.scale)["layers"], 0, "bfloat16"))
    memory = program.lower(base(), adapters()).compile().memory_analysis()
    one_layer = sum(w.nbytes for w in jax.tree.leaves(base()["layers"])) // MODEL.config.num_hidden_layers
    assert memory.output_size_in_bytes <= one_layer // 2 + 1024
    assert memory.temp_size_in_bytes < 2 * one_layer


def test_a_quantised_base_stays_quantised():
    pytest.importorskip("qwix")
    params = adapted(quantize(base(), "int8"))
    for layer in sampler_weights(params, None)["layers"]:
        assert isinstance(layer["q"], Adapted)
        assert layer["q"].base.values.qvalue.dtype == jnp.int8


def test_generate_takes_them_either_way():
    params = base()
    layered = unstacked(params)
    assert unstacked(layered) is layered
    options = {"num_generations": 2, "max_new_tokens": 5, "key": jax.random.key(2)}
    stacked, sliced = (generate(MODEL, p, [[1, 2], [3]], **options) for p in (params, layered))
    jax.tree.map(np.testing.assert_array_equal, stacked, sliced)
