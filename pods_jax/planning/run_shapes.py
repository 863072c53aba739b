"""The arrays of a run as shapes with shardings, without weights and devices, and the description of its programs."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from pods_jax.config.schema import Config
from pods_jax.config.validate import validate_on_devices
from pods_jax.errors import UserError
from pods_jax.learner import TrainState, state_shapes
from pods_jax.models import Decoder
from pods_jax.models.decoder import ModelConfig, Params, init_params
from pods_jax.models.lora import adapt
from pods_jax.models.quantized import quantize
from pods_jax.models.shapes import model_shape
from pods_jax.models.shardings import param_shardings
from pods_jax.parallel import make_meshes, num_shards, replicated
from pods_jax.rollout.weights import layer_shardings, sampler_weights
from pods_jax.training.prompts import char_tokenizer, load_dataset
from pods_jax.training.run import computed, optimizer_of, scratch_config

# ---------------------------------------------------------------- the shapes of a run


@dataclasses.dataclass(frozen=True)
class RunShapes:
    """The arrays that `make_run` would build, as shapes with shardings.

    Attributes:
      state: parameters (or adapters) and optimizer state.
      base: the frozen weights beneath adapters; None without LoRA.
      reference: the weights that the KL is taken against, where they are a copy of their own; else None.
      sampled: the weights that the sampler is given, layer by layer on `sampling_mesh`.
    """

    config: Config
    mesh: Mesh
    sampling_mesh: Mesh
    model: Decoder
    state: TrainState
    base: Params | None
    reference: Params | None
    sampled: Params

    def samples_own_embeddings(self) -> bool:
        """Whether the sampler's weights outside of layers are the trained ones: same precision, same mesh."""
        model = self.config.model
        return model.compute_dtype in (None, model.dtype) and not self.config.mesh.sampling

    def held(self) -> dict[str, int]:
        """Bytes that each device holds throughout a step."""
        return {
            "parameters": device_bytes(self.state.params),
            "optimizer state": device_bytes(self.state.opt_state),
            "frozen weights": device_bytes(self.base),
            "reference": device_bytes(self.reference),
        }


def run_shapes(config: Config, devices: Any) -> RunShapes:
    """The shapes of a run on `devices`.

    Raises:
      UserError: as `make_run`; or a quantised base on several devices, whose placement is not planned.
    """
    mesh, sampling_mesh = make_meshes(config.mesh, devices)
    validate_on_devices(config, num_shards(mesh))
    model = Decoder(planned_model(config), **computed(config))
    state = state_shapes(model, optimizer_of(config), mesh, config.lora)
    full = _full_weights(config, model, mesh)
    base = _frozen_base(config, full, mesh)
    policy = state.params if base is None else adapt(base, state.params, config.lora.scale)
    return RunShapes(
        config=config,
        mesh=mesh,
        sampling_mesh=sampling_mesh,
        model=model,
        state=state,
        base=base,
        reference=full if config.objective.beta and base is None else None,
        sampled=_sampled(policy, config.model.compute_dtype, model.config, sampling_mesh),
    )


def planned_model(config: Config) -> ModelConfig:
    """The shape of the config's model; its weights are not read."""
    if config.model.path:
        return model_shape(config.model.path)
    return scratch_config(config, char_tokenizer(config, load_dataset(config)))


def _full_weights(config: Config, model: Decoder, mesh: Mesh) -> Params:
    init = functools.partial(init_params, model, dtype=config.model.dtype)
    return _placed(jax.eval_shape(init, jax.random.key(0)), param_shardings(model.config, mesh))


def _frozen_base(config: Config, full: Params, mesh: Mesh) -> Params | None:
    if not config.lora.rank:
        return None
    return _quantized(full, config.lora.quantize_base, mesh) if config.lora.quantize_base else full


def _quantized(full: Params, kind: str, mesh: Mesh) -> Params:
    if mesh.size > 1:
        raise UserError(f"lora.quantize_base = '{kind}' is planned for one device only, the mesh has {mesh.size}")
    shapes = jax.eval_shape(functools.partial(quantize, kind=kind), full)
    return _placed(shapes, jax.tree.map(lambda _: replicated(mesh), shapes))


def _sampled(policy: Params, dtype: str | None, c: ModelConfig, mesh: Mesh) -> Params:
    weights = jax.eval_shape(functools.partial(sampler_weights, dtype=dtype), policy)
    if mesh.size == 1:  # as is every mesh of a quantised base, whose tree is another one
        return _placed(weights, jax.tree.map(lambda _: replicated(mesh), weights))
    return _placed(weights, layer_shardings(param_shardings(c, mesh), c.num_hidden_layers))


def _placed(shapes: Any, shardings: Any) -> Any:
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)


def device_bytes(tree: Any) -> int:
    """Bytes on one device of a tree of arrays, or shapes, with shardings; 0 for None."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * jax.numpy.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree)
    )


# ---------------------------------------------------------------- a program


@dataclasses.dataclass(frozen=True)
class Program:
    """One program of a step, not yet compiled.

    Attributes:
      lower: traces it.
      given: the named parts of its arguments, in bytes on each device, by formula.
      within: the named parts of its temporaries, likewise.
      beside: bytes on each device that the program does not see.
      before: bytes on each device beside these and its arguments, only until it runs.
      flops: arithmetic of one run, over all devices.
      runs: how often it runs in a step.
      unknown_trips: iterations of its loop that may end early.
      spared_bytes: traffic with the memory that a mean run is spared, as it has smaller arrays than the one compiled.
    """

    name: str
    lower: Callable[[], jax.stages.Lowered]
    given: dict[str, int]
    within: dict[str, int]
    beside: int
    flops: int | float
    runs: int = 1
    unknown_trips: int = 1
    spared_bytes: float = 0.0
    before: int = 0
