"""The programs of a training step, lowered from shapes alone: no weight exists, and their devices need not be near."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pods_jax.buckets import bucket
from pods_jax.config.schema import Config
from pods_jax.config.validate import validate_on_devices
from pods_jax.errors import UserError
from pods_jax.learner import Batch, TrainState, state_shapes
from pods_jax.learner.batch import block_size, num_blocks
from pods_jax.models import Decoder
from pods_jax.models.decoder import ModelConfig, Params, init_params
from pods_jax.models.lora import adapt
from pods_jax.models.quantized import quantize
from pods_jax.models.shapes import model_shape
from pods_jax.models.shardings import param_shardings
from pods_jax.parallel import batch_sharding, make_mesh, num_shards, replicated
from pods_jax.planning import flops
from pods_jax.planning.footprint import cache_bytes, device_bytes
from pods_jax.rollout.decode import Blocks, Cache, Drawing, begin, proceed
from pods_jax.rollout.layout import Layout, kv_bytes
from pods_jax.rollout.sampler import capacity, planned_passes
from pods_jax.rollout.weights import layer_shardings, sampler_weights
from pods_jax.training.prompts import char_tokenizer, load_dataset
from pods_jax.training.reference import make_scorer
from pods_jax.training.run import computed, optimizer_of, scratch_config, update_function


@dataclasses.dataclass(frozen=True)
class Setting:
    """What `make_run` would build, as shapes with shardings.

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
        """Whether what the sampler has besides layers is held in any case: in the same precision and layout."""
        model = self.config.model
        return model.compute_dtype in (None, model.dtype) and not self.config.mesh.sampling

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
      given: the parts of its arguments that have a name, in bytes on each device, by formula.
      within: those of its temporaries.
      beside: bytes on each device that it does not see.
      flops: of one run, over all devices.
      read_bytes: the least that a device reads from its memory: weights, each time they are used, and caches.
      runs: in a step.
      unknown_trips: iterations of its loop that may end early.
    """

    name: str
    lower: Callable[[], jax.stages.Lowered]
    given: dict[str, int]
    within: dict[str, int]
    beside: int
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
    model = Decoder(planned_model(config), **computed(config))
    state, lora = state_shapes(model, optimizer_of(config), mesh, config.lora), config.lora
    full = jax.eval_shape(functools.partial(init_params, model, dtype=config.model.dtype), jax.random.key(0))
    full = _placed(full, param_shardings(model.config, mesh))
    base = full if lora.rank else None
    if lora.quantize_base:
        base = _quantized(full, lora.quantize_base, mesh)
    policy = adapt(base, state.params, lora.scale) if lora.rank else state.params
    sampling_mesh = make_mesh(**config.mesh.sampling, devices=devices) if config.mesh.sampling else mesh
    own_reference = config.objective.beta and not lora.rank
    return Setting(
        config, mesh, sampling_mesh, model, state, base, full if own_reference else None,
        sampled=_sampled(policy, config.model.compute_dtype, model.config, sampling_mesh),
    )  # fmt: skip


def planned_model(config: Config) -> ModelConfig:
    """The shape of the config's model, its weights left where they are."""
    if config.model.path:
        return model_shape(config.model.path)
    return scratch_config(config, char_tokenizer(config, load_dataset(config)))


def _placed(shapes: Any, shardings: Any) -> Any:
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)


def _sampled(policy: Params, dtype: str | None, c: ModelConfig, mesh: Mesh) -> Params:
    weights = jax.eval_shape(functools.partial(sampler_weights, dtype=dtype), policy)
    if mesh.size == 1:  # as is every mesh of a quantised base, whose tree is another one
        return _placed(weights, jax.tree.map(lambda _: replicated(mesh), weights))
    return _placed(weights, layer_shardings(param_shardings(c, mesh), c.num_hidden_layers))


def _quantized(full: Params, kind: str, mesh: Mesh) -> Params:
    if mesh.size > 1:
        raise UserError(f"lora.quantize_base = '{kind}' is planned for one device alone, the mesh has {mesh.size}")
    shapes = jax.eval_shape(functools.partial(quantize, kind=kind), full)
    return _placed(shapes, jax.tree.map(lambda _: replicated(mesh), shapes))


def programs(setting: Setting) -> Iterator[Program]:
    """What the training loop runs on the devices in a step, at its largest shapes."""
    config = setting.config
    yield sampling(setting)
    if config.objective.beta:
        yield scoring(setting)
    if config.objective.steps_per_generation > 1 and config.objective.old_logprobs == "recompute":
        yield rescoring(setting)
    yield update(setting)


def sampling(setting: Setting) -> Program:
    """n rollouts of P prompts, none of which ends before its T tokens: the last chunk of the first of their passes."""
    c, r, mesh, weights = setting.model.config, setting.config.rollout, setting.sampling_mesh, setting.sampled
    S, T, C = bucket(r.max_prompt_length), r.max_completion_length, min(r.chunk_size, r.max_completion_length)
    dtype = weights["embed"].dtype
    layouts = planned_passes(
        [r.num_generations] * r.num_prompts, kv_bytes(c, dtype, mesh), r.max_prompt_length, T, num_shards(mesh), C,
        r.max_cache_bytes_per_device,
    )  # fmt: skip
    lower = functools.partial(
        lower_sampler, c, weights, layouts[0], batch_sharding(mesh), prompt_length=r.max_prompt_length,
        max_new_tokens=T, chunk_size=C, drawing=Drawing(r.temperature == 0, r.top_k, r.top_p, eos_ids=(0, 1), pad_id=0),
    )  # fmt: skip
    cache = {"KV cache": cache_bytes(c, layouts[0], S, T, dtype, mesh)}
    layers = device_bytes(weights["layers"])
    rest = device_bytes(weights) - layers
    capacities = [capacity(min(t + C - t % C, T), C, T) for t in range(1, T)]  # where token t goes through the layers
    rollouts = r.num_prompts * r.num_generations
    work = flops.prefill_flops(c, r.num_prompts, S) + flops.decode_flops(c, rollouts, S, T, sum(capacities))
    cache_reads = sum(cache_bytes(c, layouts[0], S, k, dtype, mesh) for k in capacities)
    return Program(
        name="sampling",
        lower=lower,
        given={"layers, one by one": layers, "other weights": rest} | (cache if C < T else {}),
        within=cache if C == T else {},
        beside=sum(setting.held().values()) - (rest if setting.samples_own_embeddings() else 0),
        flops=work / len(layouts),
        read_bytes=T * (layers + rest) + cache_reads,
        runs=len(layouts),
        unknown_trips=max(T - 1, 1),
    )


def scoring(setting: Setting) -> Program:
    """The reference's log-probabilities: of the kept rollouts, or of all where the KL is a part of the reward."""
    config, c, r = setting.config, setting.model.config, setting.config.rollout
    batch = batch_shapes(setting)
    rollouts = (batch.prompts, batch.prompt_lengths, batch.completions)
    if config.objective.reward_beta:
        rollouts = _rollout_shapes(setting, *_blocks(setting, r.num_generations))
    weights = setting.base if setting.reference is None else setting.reference
    (P, m, T), S = rollouts[2].shape, rollouts[0].shape[1]
    return Program(
        name="scoring",
        lower=functools.partial(make_scorer(config, setting.model, setting.mesh).lower, weights, *rollouts),
        given={"frozen weights" if setting.reference is None else "reference": device_bytes(weights)},
        within={},
        beside=sum(setting.held().values()) - device_bytes(weights),
        flops=sum(flops.scoring_flops(c, P, m, S, T, dataclasses.replace(config.lora, rank=0))),
        read_bytes=device_bytes(weights) * num_micro_batches(setting, P * m),
        runs=1 if config.objective.reward_beta else config.objective.steps_per_generation,
    )


def rescoring(setting: Setting) -> Program:
    """The old log-probabilities of what the optimizer steps after the first of a pass train on."""
    config, batch, params = setting.config, batch_shapes(setting), setting.state.params
    rollouts = (batch.prompts, batch.prompt_lengths, batch.completions)
    (P, m, T), S = rollouts[2].shape, rollouts[0].shape[1]
    weights = params if setting.base is None else adapt(setting.base, params, config.lora.scale)
    return Program(
        name="rescoring",
        lower=functools.partial(make_scorer(config, setting.model, setting.mesh).lower, weights, *rollouts),
        given={name: setting.held()[name] for name in ("parameters", "frozen weights")},
        within={},
        beside=sum(setting.held().values()) - device_bytes(weights),
        flops=sum(flops.scoring_flops(setting.model.config, P, m, S, T, config.lora)),
        read_bytes=device_bytes(weights) * num_micro_batches(setting, P * m),
        runs=config.objective.steps_per_generation - 1,
    )


def update(setting: Setting) -> Program:
    """One optimizer step on the kept rollouts, all of the greatest length: only its micro-batches are compiled."""
    config, c, shapes = setting.config, setting.model.config, batch_shapes(setting)
    (P, m, T), S = shapes.completions.shape, shapes.prompts.shape[1]
    step = update_function(config, setting.model, setting.mesh, widths=lambda T: (T,))
    held = setting.held()
    gradients = device_bytes(setting.state.params)
    trained = gradients + held["optimizer state"]
    recomputes = config.model.remat == "full"
    passes = (2 + recomputes) * num_micro_batches(setting, P * m)
    return Program(
        name="update",
        lower=functools.partial(step.lower, setting.state, shapes, setting.base),
        given={name: size for name, size in held.items() if name != "reference"},
        within={"gradients": gradients},
        beside=held["reference"],
        flops=flops.update_flops(c, P, m, S, T, config.lora, recomputes),
        read_bytes=passes * (held["parameters"] + held["frozen weights"]) + gradients + 2 * trained,
        runs=config.objective.updates_per_step,
    )


def num_micro_batches(setting: Setting, rollouts: int) -> int:
    """How many micro-batches of the update so many rollouts are, one after the other."""
    size = setting.config.optimizer.micro_batch_size_per_device
    return rollouts // (size * num_shards(setting.mesh)) if size else 1


def batch_shapes(setting: Setting) -> Batch:
    """The batch that `make_batch` would make of a step's rollouts if all have the greatest length."""
    config, updates = setting.config, setting.config.objective.steps_per_generation
    P, size = _blocks(setting, config.selection.num_kept, updates)
    prompts, prompt_lengths, completions = _rollout_shapes(setting, P, size)
    row, token = completions.update(shape=(P, size)), completions.update(dtype="float32")
    return Batch(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        completions=completions,
        lengths=row,
        advantages=row.update(dtype="float32"),
        behaviour_logprobs=token,
        old_logprobs=token if config.objective.old_logprobs == "behaviour" or updates > 1 else None,
        ref_logprobs=token if config.objective.loss_beta else None,
    )


def _blocks(setting: Setting, per_group: int, updates: int = 1) -> tuple[int, int]:
    """How many blocks `make_batch` makes of num_prompts / updates groups of so many, and their size."""
    config, size = setting.config, block_size(setting.config)
    needed = config.rollout.num_prompts // updates * -(-per_group // size)
    return num_blocks(config, needed, num_shards(setting.mesh)), size


def _rollout_shapes(setting: Setting, P: int, n: int) -> tuple[Any, Any, Any]:
    """Prompts, their lengths, and n completions of each."""
    r, sharding = setting.config.rollout, batch_sharding(setting.mesh)
    shapes = (P, bucket(r.max_prompt_length)), (P,), (P, n, r.max_completion_length)
    return tuple(jax.ShapeDtypeStruct(shape, "int32", sharding=sharding) for shape in shapes)


# ---------------------------------------------------------------- the sampler's largest program


def lower_sampler(
    config: ModelConfig, weights: Params, layout: Layout, sharding: NamedSharding, *, prompt_length: int,
    max_new_tokens: int, chunk_size: int, drawing: Drawing,
) -> jax.stages.Lowered:  # fmt: skip
    """What `generate` runs on a layout's rollouts at their last chunk, which has the longest cache.

    Where one chunk holds all tokens, this is prefill and decoding. Of `drawing.eos_ids`, only their number matters.
    weights: unstacked shapes.
    """
    whole = NamedSharding(sharding.mesh, P())

    def shape(dims: tuple[int, ...], dtype: str, where: NamedSharding = sharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, dtype, sharding=where)

    Q, key = len(layout.prompts), jax.eval_shape(lambda: jax.random.key(0))
    temperature = shape((), "float32", whole)
    rows = (
        shape((Q, bucket(prompt_length)), "int32"),
        shape((Q,), "int32"),
        shape((Q,), "uint32"),
        None if layout.owners is None else shape(layout.owners.shape, "int32"),
        shape(layout.rows.shape, "int32"),
    )
    if chunk_size >= max_new_tokens:
        return begin.lower(config, weights, *rows, key, temperature, length=max_new_tokens, drawing=drawing)
    start = functools.partial(begin, config, length=chunk_size, drawing=drawing, capacity=max_new_tokens)
    _, blocks = jax.eval_shape(start, weights, *rows, key, temperature)
    return proceed.lower(
        config, weights, placed(blocks, sharding), key, temperature, shape((), "int32", whole),
        length=chunk_size, drawing=drawing,
    )  # fmt: skip


def placed(blocks: Blocks, sharding: NamedSharding) -> Blocks:
    """Blocks split over the devices as batches are, the heads of their keys and values over `tensor`."""
    mesh, rows = sharding.mesh, sharding.spec[0]

    def place(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return x.update(sharding=NamedSharding(mesh, P(rows) if x.ndim else P()))

    def place_cache(cache: Cache) -> Cache:
        heads = "tensor" if cache.k.shape[1] % mesh.shape["tensor"] == 0 else None
        return jax.tree.map(lambda x: x.update(sharding=NamedSharding(mesh, P(rows, heads))), cache)

    caches = {name: [place_cache(c) for c in getattr(blocks, name)] for name in ("prompts", "cache")}
    return jax.tree.map(place, blocks._replace(prompts=None, cache=None))._replace(**caches)
