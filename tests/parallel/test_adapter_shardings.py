"""LoRA on a mesh of four simulated devices, in a process of its own."""

import os
import subprocess
import sys

CHECK = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from pods_jax.config.schema import LoraConfig
from pods_jax.models import Decoder, ModelConfig, init_params, load_pretrained, save_pretrained
from pods_jax.models.lora import adapt, adapter_weights, init_adapters, merge
from pods_jax.parallel import make_mesh
from pods_jax.models.shardings import param_shardings, weight_shardings

config, lora = ModelConfig(24, 16, 32, 2, 4, 2, 4), LoraConfig(rank=3, alpha=3.0)
model, tokens = Decoder(config), jnp.arange(16).reshape(2, 8)
params = init_params(model, jax.random.key(0))
adapters = jax.tree.map(lambda x: x + 0.1, init_adapters(config, lora, jax.random.key(1)))

mesh = make_mesh(1, 2, 2)
shardings = weight_shardings(adapter_weights(config, lora), mesh)
specs = {name: (ab["a"].spec, ab["b"].spec) for name, ab in shardings["layers"].items()}
assert specs["q"] == specs["up"] == (P(None, "fsdp", None), P(None, None, "tensor")), specs
assert specs["o"] == specs["down"] == (P(None, "tensor", None), P(None, None, "fsdp")), specs

save_pretrained(sys.argv[1], model, params)
_, base = load_pretrained(sys.argv[1], mesh=mesh)
assert jax.tree.map(lambda x: x.sharding, base) == param_shardings(config, mesh)
sharded = jax.device_put(adapters, shardings)

@jax.jit
def loss(adapters, base):
    return model.apply({"params": adapt(base, adapters, lora.scale)}, tokens).std()

(there, grads), (here, expected) = jax.value_and_grad(loss)(sharded, base), jax.value_and_grad(loss)(adapters, params)
np.testing.assert_allclose(there, here, rtol=1e-5)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), grads, expected)
merged = merge(adapt(base, sharded, lora.scale))
for name, weight in merged["layers"].items():
    assert weight.sharding.is_equivalent_to(base["layers"][name].sharding, weight.ndim), (name, weight.sharding)
"""


def test_adapters_are_sharded_like_the_weights_they_adapt(tmp_path):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", CHECK, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
