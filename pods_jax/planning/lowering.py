"""The programs of a training step, lowered from shapes alone: no weight exists, and their devices need not be near."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import Mesh

from pods_jax.config import Config
from pods_jax.errors import UserError
from pods_jax.learner import Batch, TrainState, state_shapes
from pods_jax.models import Decoder
from pods_jax.models.decoder import ModelConfig, Params, init_params
from pods_jax.models.lora import adapt
from pods_jax.models.quantized import quantize
from pods_jax.models.shapes import model_shape
from pods_jax.parallel import batch_sharding, make_mesh, num_shards, param_shardings, replicated
from pods_jax.planning import flops
from pods_jax.planning.memory import cache_bytes, device_bytes
from pods_jax.rollout import sampler
from pods_jax.rollout.buckets import bucket
from pods_jax.rollout.decode import Drawing
from pods_jax.training import reference
from pods_jax.training.batching import block_size, num_blocks
from pods_jax.training.run import optimizer_of, update_function
from pods_jax.training.setup import char_tokenizer, load_dataset, scratch_config
from pods_jax.validation import validate_on_devices


@dataclasses.dataclass(frozen=True)
class Setting:
    """What `make_run` would build, as shapes with shardings.

    Attributes:
      state: parameters (or adapters) and optimizer state.
      base: the frozen weights beneath adapters; None without LoRA.
      reference: the weights that the KL is taken against, where they are a copy of their own; else None.
      sampled: the weights that the sampler is given, laid out on `sampling_mesh`.
    """

    config: Config
    mesh: Mesh
    sampling_mesh: Mesh
    model: Decoder
    state: TrainState
    base: Params | None
    reference: Params | None
    sampled: Params

    def held(self) -> dict[str, int]:
        """What is on each device throughout a step, in bytes."""
        return {
            "parameters": device_bytes(self.state.params),
            "optimizer state": device_bytes(self.state.opt_state),
            "frozen weights": device_bytes(self.base),
            "reference": device_bytes(self.reference),
        }


@dataclasses.dataclass(frozen=True)
class Program:
    """One program of a step, not yet compiled.

    Attributes:
      lower: traces it.
      given: what of `Setting.held` is among its arguments.
      beside: bytes on each device that it does not see.
      within: the parts of its temporaries that have a name, in bytes on each device, by formula.
      flops: over all devices.
      read_bytes: the least that a device reads from its memory: weights, each time they are used, and caches.
      runs: in a step.
      unknown_trips: iterations of its loop that may end early.
    """

    name: str
    lower: Callable[[], jax.stages.Lowered]
    given: tuple[str, ...]
    beside: int
    within: dict[str, int]
    flops: float
    read_bytes: float
    runs: int = 1
    unknown_trips: int = 1


def make_setting(config: Config, devices: Any) -> Setting:
    """Shapes of a run on `devices`.

    Raises:
      UserError: as `make_run`; or a quantised base on several devices, whose placement is not planned.
    """
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor, devices)
    validate_on_devices(config, num_shards(mesh))
    model = Decoder(planned_model(config), remat=config.model.remat, compute_dtype=config.model.compute_dtype)
    state, lora = state_shapes(model, optimizer_of(config), mesh, config.lora), config.lora
    full = jax.eval_shape(functools.partial(init_params, model, dtype=config.model.dtype), jax.random.key(0))
    full = _placed(full, param_shardings(model.config, mesh))
    base = sampled = None
    if lora.rank:
        base, sampled = full, full
        if lora.quantize_base:
            base = _quantized(full, lora.quantize_base, mesh)
            sampled = adapt(base, state.params, lora.scale)
    sampled, sampling_mesh = sampled or state.params, mesh
    if config.mesh.sampling:
        sampling_mesh = make_mesh(**config.mesh.sampling, devices=devices)
        sampled = _placed(sampled, param_shardings(model.config, sampling_mesh))
    own_reference = config.objective.beta and not lora.rank
    return Setting(config, mesh, sampling_mesh, model, state, base, full if own_reference else None, sampled)


def planned_model(config: Config) -> ModelConfig:
    """The shape of the config's model, its weights left where they are."""
    if config.model.path:
        return model_shape(config.model.path)
    return scratch_config(config, char_tokenizer(config, load_dataset(config)))


def _placed(shapes: Any, shardings: Any) -> Any:
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)


def _quantized(full: Params, kind: str, mesh: Mesh) -> Params:
    if mesh.size > 1:
        raise UserError(f"lora.quantize_base = '{kind}' is planned for one device alone, the mesh has {mesh.size}")
    shapes = jax.eval_shape(functools.partial(quantize, kind=kind), full)
    return _placed(shapes, jax.tree.map(lambda _: replicated(mesh), shapes))


def programs(setting: Setting) -> Iterator[Program]:
    """What the training loop runs on the devices in a step, at its largest shapes."""
    yield sampling(setting)
    if setting.config.objective.beta:
        yield scoring(setting)
    yield update(setting)


def sampling(setting: Setting) -> Program:
    """n rollouts of P prompts; none ends before its T tokens."""
    config, c, r = setting.config, setting.model.config, setting.config.rollout
    P, n, S, T = r.num_prompts, r.num_generations, bucket(r.max_prompt_length), r.max_completion_length
    lower = functools.partial(
        sampler.lower,
        setting.model,
        setting.sampled,
        num_generations=[n] * P,
        prompt_length=r.max_prompt_length,
        max_new_tokens=T,
        drawing=Drawing(r.temperature == 0, r.top_k, r.top_p, eos_ids=(0, 1), pad_id=0),
        sharding=batch_sharding(setting.sampling_mesh),
    )
    itemsize = jax.numpy.dtype(setting.sampled["embed"].dtype).itemsize
    cache = cache_bytes(c, P, P * n, S, T, itemsize, setting.sampling_mesh)
    held, weights = sum(setting.held().values()), device_bytes(setting.sampled)
    own_weights = setting.sampled is setting.state.params or config.lora.quantize_base
    return Program(
        name="sampling",
        lower=lower,
        given=("parameters",) if setting.sampled is setting.state.params else (),
        beside=held - weights if own_weights else held,
        within={"KV cache": cache},
        flops=flops.prefill_flops(c, P, S) + flops.decode_flops(c, P * n, S, T),
        read_bytes=weights + (T - 1) * (weights + cache),
        unknown_trips=max(T - 1, 1),
    )


def scoring(setting: Setting) -> Program:
    """The reference's log-probabilities: of the kept rollouts, or of all where the KL is a part of the reward."""
    config, c, r = setting.config, setting.model.config, setting.config.rollout
    batch = batch_shapes(setting)
    rollouts = (batch.prompts, batch.prompt_lengths, batch.completions)
    if config.objective.reward_beta:
        rollouts = _rollout_shapes(setting, r.num_prompts, bucket(r.num_generations))
    weights = setting.base if setting.reference is None else setting.reference
    (P, m, T), S = rollouts[2].shape, rollouts[0].shape[1]
    return Program(
        name="scoring",
        lower=functools.partial(reference.lower, config, setting.model, setting.mesh, weights, rollouts),
        given=("frozen weights",) if setting.reference is None else ("reference",),
        beside=sum(setting.held().values()) - device_bytes(weights),
        within={},
        flops=sum(flops.scoring_flops(c, P, m, S, T, dataclasses.replace(config.lora, rank=0))),
        read_bytes=device_bytes(weights),
    )


def update(setting: Setting) -> Program:
    """One optimizer step on the kept rollouts."""
    config, c, shapes = setting.config, setting.model.config, batch_shapes(setting)
    (P, m, T), S = shapes.completions.shape, shapes.prompts.shape[1]
    step, held = update_function(config, setting.model, setting.mesh), setting.held()
    gradients = device_bytes(setting.state.params)
    trained = gradients + held["optimizer state"]
    recomputes = config.model.remat == "full"
    passes = (2 + recomputes) * micro_batches(setting)
    given = ("parameters", "optimizer state", "frozen weights")
    return Program(
        name="update",
        lower=functools.partial(step.lower, setting.state, shapes, setting.base),
        given=given,
        beside=held["reference"],
        within={"gradients": gradients},
        flops=flops.update_flops(c, P, m, S, T, config.lora, recomputes),
        read_bytes=passes * (held["parameters"] + held["frozen weights"]) + gradients + 2 * trained,
        runs=config.objective.num_iterations,
    )


def micro_batches(setting: Setting) -> int:
    """How many micro-batches an update goes through, one after the other."""
    size = setting.config.optimizer.micro_batch_size_per_device
    rollouts = math.prod(batch_shapes(setting).lengths.shape)
    return rollouts // (size * num_shards(setting.mesh)) if size else 1


def batch_shapes(setting: Setting) -> Batch:
    """The batch that `make_batch` would make of a step's rollouts if all have the greatest length."""
    config, devices = setting.config, num_shards(setting.mesh)
    size = block_size(config)
    P = num_blocks(config, config.rollout.num_prompts * config.selection.num_kept // size, devices)
    prompts, prompt_lengths, completions = _rollout_shapes(setting, P, size)
    row, token = completions.update(shape=(P, size)), completions.update(dtype="float32")
    return Batch(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        completions=completions,
        lengths=row,
        advantages=row.update(dtype="float32"),
        behaviour_logprobs=token,
        old_logprobs=token if config.objective.old_logprobs == "behaviour" else None,
        ref_logprobs=token if config.objective.loss_beta else None,
    )


def _rollout_shapes(setting: Setting, P: int, n: int) -> tuple[Any, Any, Any]:
    """Prompts, their lengths, and n completions of each."""
    r, sharding = setting.config.rollout, batch_sharding(setting.mesh)
    shapes = (P, bucket(r.max_prompt_length)), (P,), (P, n, r.max_completion_length)
    return tuple(jax.ShapeDtypeStruct(shape, "int32", sharding=sharding) for shape in shapes)
