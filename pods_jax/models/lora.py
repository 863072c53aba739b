"""LoRA (Hu et al. 2021, arXiv 2106.09685): a frozen matrix W acts as W + (alpha / r) A B; only A and B are trained.

Adapters are a parameter tree of their own, stacked over layers like the weights that they adapt:
`{"layers": {"q": {"a": [L, D, r], "b": [L, r, H h]}, ...}}`.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array, Float, Key

from pods_jax.config.schema import LoraConfig
from pods_jax.models.decoder import ModelConfig, Params, Weight, init_tree, layer_weights, model_weights
from pods_jax.models.quantized import Quantized

MODULES = {f"{name}_proj": name for name in ("q", "k", "v", "o", "gate", "up", "down")}
"""The projections that can be adapted, by the names that `LoraConfig.target_modules`, transformers and PEFT use."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Adapted:
    """A matrix with its adapter. In the decoder's layers it takes the place of the matrix, and multiplies like one.

    Compared with x W, x W + (alpha / r) (x A) B costs r (in + out) more multiplications for each token. It needs no
    merged copy of W, and no gradient of W's size. A and B act in x's precision.
    """

    base: Float[Array, "*L in out"] | Quantized
    a: Float[Array, "*L in r"]
    b: Float[Array, "*L r out"]
    scale: float = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    def __rmatmul__(self, x: Float[Array, "N in"]) -> Float[Array, "N out"]:
        low = (x @ self.a.astype(x.dtype)) * self.scale
        return x @ self.base + low @ self.b.astype(x.dtype)

    def astype(self, dtype: str) -> "Adapted":
        """The same with the base in another precision; A and B are cast when they multiply."""
        return dataclasses.replace(self, base=self.base.astype(dtype))

    def merged(self) -> Float[Array, "*L in out"]:
        """The single matrix that acts like both together, in the precision of the base."""
        base = self.base.dense() if isinstance(self.base, Quantized) else self.base
        return base + (self.scale * (self.a @ self.b)).astype(base.dtype)


def adapter_weights(config: ModelConfig, lora: LoraConfig) -> dict[str, Any]:
    """The declarations of all adapters; A starts as in PEFT (Kaiming uniform, a = sqrt 5), B at 0."""
    layers = {}
    for name in (MODULES[module] for module in lora.target_modules):
        (size_in, size_out), (axis_in, axis_out), _ = layer_weights(config)[name]
        L = config.num_hidden_layers
        uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform", batch_axis=0)
        layers[name] = {
            "a": Weight((L, size_in, lora.rank), ("layers", axis_in, None), uniform),
            "b": Weight((L, lora.rank, size_out), ("layers", None, axis_out), nn.initializers.zeros),
        }
    return {"layers": layers}


def trained_weights(config: ModelConfig, lora: LoraConfig) -> dict[str, Any]:
    """The declarations of the trained weights: the adapters, or with rank 0 the model's own."""
    return adapter_weights(config, lora) if lora.rank else model_weights(config)


def init_adapters(config: ModelConfig, lora: LoraConfig, key: Key[Array, ""]) -> Params:
    """New float32 adapters, with which the adapted model still computes the same as its base."""
    return init_tree(key, adapter_weights(config, lora))


def adapt(base: Params, adapters: Params, scale: float) -> Params:
    """The parameters of the adapted model, usable as a decoder's. scale: `LoraConfig.scale`."""
    layers = {name: Adapted(base["layers"][name], **ab, scale=scale) for name, ab in adapters["layers"].items()}
    return {**base, "layers": {**base["layers"], **layers}}


def merge(params: Params) -> Params:
    """The parameters with each adapted or quantised matrix as one plain matrix."""
    layers = {name: _plain(w) if isinstance(w, Adapted | Quantized) else w for name, w in params["layers"].items()}
    return {**params, "layers": layers}


@jax.jit
def _plain(w: Adapted | Quantized) -> Array:
    return w.merged() if isinstance(w, Adapted) else w.dense()
