"""The programs of a training step, lowered for a plan: from shapes only, without weights and without their devices."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

from pods_jax.buckets import bucket, ceil_div
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
from pods_jax.rollout.decode import Blocks, Cache, begin, proceed
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import Layout, kv_bytes
from pods_jax.rollout.sampler import capacity, planned_passes
from pods_jax.rollout.weights import layer_shardings, sampler_weights
from pods_jax.training.prompts import char_tokenizer, load_dataset
from pods_jax.training.reference import make_scorer
from pods_jax.training.run import computed, optimizer_of, scratch_config, update_function

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
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor, devices)
    validate_on_devices(config, num_shards(mesh))
    sampling_mesh = make_mesh(**config.mesh.sampling, devices=devices) if config.mesh.sampling else mesh
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


# ---------------------------------------------------------------- the programs


@dataclasses.dataclass(frozen=True)
class Program:
    """One program of a step, not yet compiled.

    Attributes:
      lower: traces it.
      given: the named parts of its arguments, in bytes on each device, by formula.
      within: the named parts of its temporaries, likewise.
      beside: bytes on each device that the program does not see.
      flops: arithmetic of one run, over all devices.
      read_bytes: the least that a device reads from its memory: weights, each time they are used, and caches.
      runs: how often it runs in a step.
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


def programs(run: RunShapes) -> Iterator[Program]:
    """All programs that the training loop runs on the devices in a step, at their largest shapes."""
    objective = run.config.objective
    yield sampling(run)
    if objective.beta:
        yield scoring(run)
    if objective.steps_per_generation > 1 and objective.old_logprobs == "recompute":
        yield rescoring(run)
    yield update(run)


def sampling(run: RunShapes) -> Program:
    """Decoding of n rollouts of P prompts, none of which ends before T tokens: the last chunk of the first pass."""
    c = run.model.config
    r = run.config.rollout
    T = r.max_completion_length
    chunk = min(r.chunk_size, T)
    layouts = _passes(run, chunk)
    layers = device_bytes(run.sampled["layers"])
    rest = device_bytes(run.sampled) - layers
    capacities = [capacity(min(t + chunk - t % chunk, T), chunk, T) for t in range(1, T)]  # as token t meets the layers
    cache = functools.partial(
        cache_bytes, c, layouts[0], r.max_prompt_length, dtype=run.sampled["embed"].dtype, mesh=run.sampling_mesh
    )
    chunked = chunk < T  # then the cache goes from program to program; else it is a temporary
    full_cache = {"KV cache": cache(T)}
    return Program(
        name="sampling",
        lower=functools.partial(_lower_sampling, run, layouts[0], chunk),
        given={"layers, one by one": layers, "other weights": rest} | (full_cache if chunked else {}),
        within={} if chunked else full_cache,
        beside=sum(run.held().values()) - (rest if run.samples_own_embeddings() else 0),
        flops=_sampling_flops(run, sum(capacities)) / len(layouts),
        read_bytes=T * (layers + rest) + sum(cache(k) for k in capacities),
        runs=len(layouts),
        unknown_trips=max(T - 1, 1),
    )


def _passes(run: RunShapes, chunk: int) -> list[Layout]:
    """The layouts in which the sampler would decode a step's rollouts, one pass after the other."""
    r = run.config.rollout
    token_bytes = kv_bytes(run.model.config, run.sampled["embed"].dtype, run.sampling_mesh)
    return planned_passes(
        [r.num_generations] * r.num_prompts, token_bytes, r.max_prompt_length, r.max_completion_length,
        num_shards(run.sampling_mesh), chunk, r.max_cache_bytes_per_device,
    )  # fmt: skip


def _lower_sampling(run: RunShapes, layout: Layout, chunk: int) -> jax.stages.Lowered:
    r = run.config.rollout
    return lower_sampler(
        run.model.config, run.sampled, layout, batch_sharding(run.sampling_mesh), prompt_length=r.max_prompt_length,
        max_new_tokens=r.max_completion_length, chunk_size=chunk,
        drawing=Drawing(
            r.temperature == 0, r.top_k, r.top_p, (0, 1), min_p=r.min_p, repetition_penalty=r.repetition_penalty
        ),
    )  # fmt: skip


def _sampling_flops(run: RunShapes, cached: int) -> int:
    c = run.model.config
    r = run.config.rollout
    S = bucket(r.max_prompt_length)
    decode = flops.decode_flops(c, r.num_prompts * r.num_generations, S, r.max_completion_length, cached)
    return flops.prefill_flops(c, r.num_prompts, S) + decode


def cache_bytes(c: ModelConfig, layout: Layout, prompt_length: int, T: int, dtype: DTypeLike, mesh: Mesh) -> int:
    """Bytes of keys and values on one device, with its share of blocks.

    Each block holds its prompt, padded to its bucket, and T tokens of each of its rollouts.
    """
    blocks, g = layout.rows.shape
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    return kv_bytes(c, dtype, mesh) * (blocks * bucket(prompt_length) + blocks * g * T) // shards


def scoring(run: RunShapes) -> Program:
    """The reference's log-probs of the kept rollouts, or of all rollouts where the KL is a part of the reward."""
    config = run.config
    rollouts = _kept_rollouts(run)
    if config.objective.reward_beta:
        rollouts = _rollout_shapes(run, *_blocks(run, config.rollout.num_generations))
    shares_base = run.reference is None
    weights = run.base if shares_base else run.reference
    without_adapters = dataclasses.replace(config.lora, rank=0)
    return Program(
        name="scoring",
        lower=functools.partial(make_scorer(config, run.model, run.mesh).lower, weights, *rollouts),
        given={"frozen weights" if shares_base else "reference": device_bytes(weights)},
        within={},
        beside=sum(run.held().values()) - device_bytes(weights),
        flops=sum(flops.scoring_flops(run.model.config, *_sizes(rollouts), without_adapters)),
        read_bytes=device_bytes(weights) * num_micro_batches(run, rollouts),
        runs=1 if config.objective.reward_beta else config.objective.steps_per_generation,
    )


def rescoring(run: RunShapes) -> Program:
    """The policy's log-probs of the rollouts that later optimizer steps of a pass train on: their old log-probs."""
    config = run.config
    rollouts = _kept_rollouts(run)
    params = run.state.params
    weights = params if run.base is None else adapt(run.base, params, config.lora.scale)
    return Program(
        name="rescoring",
        lower=functools.partial(make_scorer(config, run.model, run.mesh).lower, weights, *rollouts),
        given={name: run.held()[name] for name in ("parameters", "frozen weights")},
        within={},
        beside=sum(run.held().values()) - device_bytes(weights),
        flops=sum(flops.scoring_flops(run.model.config, *_sizes(rollouts), config.lora)),
        read_bytes=device_bytes(weights) * num_micro_batches(run, rollouts),
        runs=config.objective.steps_per_generation - 1,
    )


def update(run: RunShapes) -> Program:
    """One optimizer step on the kept rollouts, all of the greatest length: only its micro-batches are compiled."""
    config = run.config
    batch = batch_shapes(run)
    rollouts = (batch.prompts, batch.prompt_lengths, batch.completions)
    step = update_function(config, run.model, run.mesh, widths=lambda T: (T,))
    held = run.held()
    gradients = device_bytes(run.state.params)
    trained = gradients + held["optimizer state"]
    recomputes = config.model.remat == "full"
    weight_reads = (2 + recomputes) * num_micro_batches(run, rollouts)
    return Program(
        name="update",
        lower=functools.partial(step.lower, run.state, batch, run.base),
        given={name: size for name, size in held.items() if name != "reference"},
        within={"gradients": gradients},
        beside=held["reference"],
        flops=flops.update_flops(run.model.config, *_sizes(rollouts), config.lora, recomputes),
        read_bytes=weight_reads * (held["parameters"] + held["frozen weights"]) + gradients + 2 * trained,
        runs=config.objective.updates_per_step,
    )


# ---------------------------------------------------------------- the shapes of a batch


Rollouts = tuple[Any, Any, Any]
"""Shapes of prompts [P, S], their lengths [P] and completions [P, n, T]."""


def num_micro_batches(run: RunShapes, rollouts: Rollouts) -> int:
    """Number of micro-batches in which the update goes through rollouts."""
    size = run.config.optimizer.micro_batch_size_per_device
    P, m, _, _ = _sizes(rollouts)
    return P * m // (size * num_shards(run.mesh)) if size else 1


def batch_shapes(run: RunShapes) -> Batch:
    """The batch that `make_batch` would make of a step's rollouts if all have the greatest length."""
    objective = run.config.objective
    prompts, prompt_lengths, completions = _kept_rollouts(run)
    row = completions.update(shape=completions.shape[:2])
    token = completions.update(dtype="float32")
    has_old = objective.old_logprobs == "behaviour" or objective.steps_per_generation > 1
    return Batch(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        completions=completions,
        lengths=row,
        advantages=row.update(dtype="float32"),
        behaviour_logprobs=token,
        old_logprobs=token if has_old else None,
        ref_logprobs=token if objective.loss_beta else None,
    )


def _kept_rollouts(run: RunShapes) -> Rollouts:
    """The rollouts of one optimizer step."""
    config = run.config
    return _rollout_shapes(run, *_blocks(run, config.selection.num_kept, config.objective.steps_per_generation))


def _sizes(rollouts: Rollouts) -> tuple[int, int, int, int]:
    """P, n, S and T."""
    prompts, _, completions = rollouts
    P, n, T = completions.shape
    return P, n, prompts.shape[1], T


def _blocks(run: RunShapes, per_group: int, updates: int = 1) -> tuple[int, int]:
    """Number and size of the blocks that `make_batch` makes of num_prompts / updates groups of `per_group` rollouts."""
    size = block_size(run.config)
    needed = run.config.rollout.num_prompts // updates * ceil_div(per_group, size)
    return num_blocks(run.config, needed, num_shards(run.mesh)), size


def _rollout_shapes(run: RunShapes, P: int, n: int) -> Rollouts:
    r = run.config.rollout
    shapes = (P, bucket(r.max_prompt_length)), (P,), (P, n, r.max_completion_length)
    sharding = batch_sharding(run.mesh)
    return tuple(jax.ShapeDtypeStruct(shape, "int32", sharding=sharding) for shape in shapes)


# ---------------------------------------------------------------- the sampler's largest program


def lower_sampler(
    config: ModelConfig, weights: Params, layout: Layout, sharding: NamedSharding, *, prompt_length: int,
    max_new_tokens: int, chunk_size: int, drawing: Drawing,
) -> jax.stages.Lowered:  # fmt: skip
    """Lowers the program that `generate` runs on a layout's rollouts at their last chunk, which has the longest cache.

    Where one chunk holds all tokens, this is prefill and decoding together.

    Args:
      weights: unstacked shapes.
      drawing: of its `eos_ids` only the number matters.
    """
    rows = _sampler_rows(layout, bucket(prompt_length), sharding)
    whole = NamedSharding(sharding.mesh, P())
    key = jax.eval_shape(lambda: jax.random.key(0))
    temperature = jax.ShapeDtypeStruct((), "float32", sharding=whole)
    if chunk_size >= max_new_tokens:
        return begin.lower(config, weights, *rows, key, temperature, length=max_new_tokens, drawing=drawing)
    start = functools.partial(begin, config, length=chunk_size, drawing=drawing, capacity=max_new_tokens)
    _, blocks = jax.eval_shape(start, weights, *rows, key, temperature)
    position = jax.ShapeDtypeStruct((), "int32", sharding=whole)
    return proceed.lower(
        config, weights, placed(blocks, sharding), key, temperature, position, length=chunk_size, drawing=drawing
    )


def _sampler_rows(layout: Layout, S: int, sharding: NamedSharding) -> tuple[jax.ShapeDtypeStruct | None, ...]:
    """Shapes of `begin`'s arguments by prompt or block: tokens, lengths, ids, owners, rollout numbers."""

    def shape(dims: tuple[int, ...], dtype: str = "int32") -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, dtype, sharding=sharding)

    num_prompts = len(layout.prompts)
    owners = None if layout.owners is None else shape(layout.owners.shape)
    return (
        shape((num_prompts, S)),
        shape((num_prompts,)),
        shape((num_prompts,), "uint32"),
        owners,
        shape(layout.rows.shape),
    )


def placed(blocks: Blocks, sharding: NamedSharding) -> Blocks:
    """Blocks split over the devices as batches are, the heads of their keys and values over `tensor`."""
    mesh = sharding.mesh
    rows = sharding.spec[0]

    def place(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return x.update(sharding=NamedSharding(mesh, P(rows) if x.ndim else P()))

    def place_cache(cache: Cache) -> Cache:
        heads = "tensor" if cache.k.shape[1] % mesh.shape["tensor"] == 0 else None
        return jax.tree.map(lambda x: x.update(sharding=NamedSharding(mesh, P(rows, heads))), cache)

    prompts = [place_cache(cache) for cache in blocks.prompts]
    caches = [place_cache(cache) for cache in blocks.cache]
    others = jax.tree.map(place, blocks._replace(prompts=None, cache=None))
    return others._replace(prompts=prompts, cache=caches)
