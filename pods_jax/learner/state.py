"""The state that an update changes: sharded parameters and optimizer moments, for real or as shapes."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from pods_jax.config.schema import LoraConfig
from pods_jax.models.decoder import Decoder, Params, init_tree
from pods_jax.models.lora import trained_weights
from pods_jax.models.shardings import weight_shardings
from pods_jax.parallel import place, replicated

FULL = LoraConfig(rank=0)
"""No adapters: all weights are trained."""


class TrainState(NamedTuple):
    """The arrays that an update changes.

    Attributes:
      params: the model's parameters, or the adapters that are trained in their place.
      opt_state: the optimizer's state.
      step: [] updates that changed the parameters.
    """

    params: Params
    opt_state: Any
    step: Int[Array, ""]


def init_state(
    model: Decoder,
    params: Params,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    lora: LoraConfig = FULL,
) -> TrainState:
    """A state born sharded: parameters placed by `models.shardings`, optimizer moments like their parameters."""
    shardings = state_shardings(model, optimizer, mesh, lora)
    params = place(params, shardings.params)
    opt_state = jax.jit(optimizer.init, out_shardings=shardings.opt_state)(params)
    return TrainState(params, opt_state, place(np.int32(0), shardings.step))


def state_shapes(
    model: Decoder,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    lora: LoraConfig = FULL,
) -> TrainState:
    """Shapes and shardings of what `init_state` returns, for compiling an update ahead of time."""
    params = _param_shapes(model, lora)
    shapes = TrainState(params, jax.eval_shape(optimizer.init, params), jax.ShapeDtypeStruct((), jnp.int32))
    shardings = state_shardings(model, optimizer, mesh, lora)
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)


def state_shardings(
    model: Decoder, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh, lora: LoraConfig
) -> TrainState:
    """A TrainState of shardings."""
    params = weight_shardings(trained_weights(model.config, lora), mesh)
    moments = optax.tree.map_params(
        optimizer,
        lambda moment, sharding: moment if _is_masked(moment) else sharding,
        jax.eval_shape(optimizer.init, _param_shapes(model, lora)),
        params,
        transform_non_params=lambda _: replicated(mesh),
        is_leaf=_is_masked,
    )
    return TrainState(params, moments, replicated(mesh))


def _is_masked(moment: Any) -> bool:
    """True for the place of a parameter that another part of the optimizer moves."""
    return isinstance(moment, optax.MaskedNode)


def _param_shapes(model: Decoder, lora: LoraConfig) -> Params:
    init = functools.partial(init_tree, weights=trained_weights(model.config, lora))
    return jax.eval_shape(init, jax.random.key(0))
