"""The weights as the sampler multiplies with them: a list of layers, as slices in a loop are copied for every token."""

import functools
from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from pods_jax.models.decoder import Params, in_dtype
from pods_jax.models.lora import Adapted
from pods_jax.models.quantized import Quantized


def unstacked(params: Params) -> Params:
    """A decoder's parameters with a list of layers in place of their stacks; those that have it stay as they are."""
    return params if isinstance(params["layers"], list) else {**params, "layers": _each(_slice, params["layers"])}


def sampler_weights(params: Params, dtype: str | None) -> Params:
    """`unstacked`, with adapters merged but for those over a quantised matrix, and in `dtype` where one is given.

    Merged weights decode fastest. They are made layer by layer, each by the same program, and never stacked.
    """
    rest = {name: w for name, w in params.items() if name != "layers"}
    ready = functools.partial(_ready, dtype=dtype)
    return {**_cast(rest, dtype), "layers": _each(ready, params["layers"])}


def layer_shardings(shardings: Any, num_layers: int) -> Any:
    """Shardings of unstacked weights, from those of stacked ones."""
    layer = jax.tree.map(lambda s: NamedSharding(s.mesh, P(*s.spec[1:])), shardings["layers"])
    return {**shardings, "layers": [layer] * num_layers}


def _each(program: Any, stacks: Params) -> list[Params]:
    return [program(stacks, i) for i in range(len(jax.tree.leaves(stacks)[0]))]


@jax.jit
def _slice(stacks: Params, i: int | Int[Array, ""]) -> Params:
    return jax.tree.map(lambda a: a[i], stacks)


@functools.partial(jax.jit, static_argnames="dtype")
def _ready(stacks: Params, i: int | Int[Array, ""], dtype: str | None) -> Params:
    return _cast({name: _merged(w) for name, w in _slice(stacks, i).items()}, dtype)


def _merged(w: Any) -> Any:
    return w.merged() if isinstance(w, Adapted) and not isinstance(w.base, Quantized) else w


def _cast(weights: Params, dtype: str | None) -> Params:
    return weights if dtype is None else in_dtype(weights, dtype)
