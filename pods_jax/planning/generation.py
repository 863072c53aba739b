"""The sampler's programs, lowered for a plan: prefill with a first chunk of tokens, and decoding of the last chunk."""

import dataclasses
import functools
from collections.abc import Iterator

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

from pods_jax.buckets import bucket, ceil_div
from pods_jax.models.decoder import ModelConfig, Params
from pods_jax.parallel import batch_sharding, num_shards
from pods_jax.planning import flops
from pods_jax.planning.rounds import largest_round
from pods_jax.planning.run_shapes import Program, RunShapes, device_bytes
from pods_jax.rollout.decode import Blocks, Cache, begin, proceed
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import Layout, kv_bytes
from pods_jax.rollout.sampler import capacity, planned_passes


@dataclasses.dataclass(frozen=True)
class Generation:
    """The rollouts of a step's largest round, in passes of which the first is planned: none ends before T tokens.

    Attributes:
      counts: rollouts of each request; S, T: tokens of a prompt and a completion; chunk: tokens decoded at a time.
      layouts: one a pass.
    """

    run: RunShapes
    counts: list[int]
    S: int
    T: int
    chunk: int
    layouts: list[Layout]

    def cache(self, capacity: int) -> int:
        """Bytes on each device of the keys and values of a pass, with room for so many tokens of each rollout."""
        dtype = self.run.sampled["embed"].dtype
        return cache_bytes(self.run.model.config, self.layouts[0], self.S, capacity, dtype, self.run.sampling_mesh)

    def prefill_flops(self) -> int:
        """Arithmetic of all passes: the prompts, and the first chunk."""
        c = self.run.model.config
        decode = flops.decode_flops(c, sum(self.counts), self.S, self.chunk, (self.chunk - 1) * self.chunk)
        return flops.prefill_flops(c, len(self.counts), self.S) + decode

    @property
    def later_chunks(self) -> list[tuple[int, int]]:
        """Of each chunk after the first, the number of tokens and the capacity of the cache."""
        starts = range(self.chunk, self.T, self.chunk)
        tokens = [min(self.chunk, self.T - start) for start in starts]
        return [(n, capacity(start + self.chunk, self.chunk, self.T)) for n, start in zip(tokens, starts, strict=True)]

    def chunk_flops(self) -> int:
        """Arithmetic of all passes: the chunks after the first."""
        c = self.run.model.config
        rollouts = sum(self.counts)
        met = sum(tokens * (self.S + room) for tokens, room in self.later_chunks)
        return (self.T - self.chunk) * flops.token_flops(c, rollouts) + flops.attention_flops(c, rollouts, met)

    def growth_bytes(self) -> int:
        """Bytes on each device of a layer's keys and values before they grow for the last time, layer by layer."""
        rooms = [capacity(self.chunk, self.chunk, self.T), *(room for _, room in self.later_chunks)]
        before = max(room for room in rooms if room < self.T)
        return (self.cache(before) - self.cache(0)) // self.run.model.config.num_hidden_layers

    def spared_bytes(self) -> float:
        """Bytes of the cache that a mean chunk after the first does not read, as it has no room for T tokens yet."""
        spared = [tokens * (self.cache(self.T) - self.cache(room)) for tokens, room in self.later_chunks]
        return float(np.mean(spared))


def generation(run: RunShapes) -> Iterator[Program]:
    """ "sampling", where one chunk has all tokens; else "prefill" with the first chunk, and "sampling" of a later one.

    Of the later chunks the last one, which has the largest cache, is compiled.
    """
    yield from _programs(_first_turn(run), "prefill", "sampling")


def later_turns(run: RunShapes) -> Iterator[Program]:
    """ "later turn", and "later prefill" before it where one chunk has not all tokens: a turn after an observation.

    The prompt of each rollout is its own, and as long as a rollout may be.
    """
    r = run.config.rollout
    rollouts = sum(largest_round(run.config))
    turns = _generation(run, [1] * rollouts, r.max_prompt_length + r.max_completion_length)
    yield from _programs(turns, "later prefill", "later turn")


def _programs(g: Generation, prefill: str, sampling: str) -> Iterator[Program]:
    run = g.run
    weights = _weight_parts(run)
    passes = len(g.layouts)
    beside = sum(run.held().values()) - (weights["other weights"] if run.samples_own_embeddings() else 0)
    first = Program(
        name=sampling if g.chunk == g.T else prefill,
        lower=functools.partial(_lower, g, last=False),
        given=weights,
        within={"KV cache": g.cache(g.chunk)},
        beside=beside,
        flops=g.prefill_flops() / passes,
        runs=passes,
        unknown_trips=max(g.chunk - 1, 1),
    )
    yield first
    if g.chunk == g.T:
        return
    later = len(g.later_chunks)
    yield Program(
        name=sampling,
        lower=functools.partial(_lower, g, last=True),
        given=weights | {"KV cache": g.cache(g.T)},
        within={},
        beside=beside,
        flops=g.chunk_flops() / passes / later,
        runs=passes * later,
        unknown_trips=ceil_div(g.T - g.chunk, later),
        spared_bytes=g.spared_bytes(),
        before=g.growth_bytes(),
    )


def _first_turn(run: RunShapes) -> Generation:
    return _generation(run, largest_round(run.config), run.config.rollout.max_prompt_length)


def _generation(run: RunShapes, counts: list[int], prompt_length: int) -> Generation:
    r = run.config.rollout
    chunk = min(r.chunk_size, r.max_completion_length)
    token_bytes = kv_bytes(run.model.config, run.sampled["embed"].dtype, run.sampling_mesh)
    layouts = planned_passes(
        counts, token_bytes, prompt_length, r.max_completion_length, num_shards(run.sampling_mesh), chunk,
        r.max_cache_bytes_per_device,
    )  # fmt: skip
    return Generation(run, counts, bucket(prompt_length), r.max_completion_length, chunk, layouts)


def _weight_parts(run: RunShapes) -> dict[str, int]:
    layers = device_bytes(run.sampled["layers"])
    return {"layers, one by one": layers, "other weights": device_bytes(run.sampled) - layers}


def _lower(g: Generation, last: bool) -> jax.stages.Lowered:
    r = g.run.config.rollout
    lower = lower_last_chunk if last else lower_first_chunk
    return lower(
        g.run.model.config, g.run.sampled, g.layouts[0], batch_sharding(g.run.sampling_mesh), prompt_length=g.S,
        max_new_tokens=g.T, chunk_size=g.chunk,
        drawing=Drawing(
            r.temperature == 0, r.top_k, r.top_p, (0, 1), min_p=r.min_p, repetition_penalty=r.repetition_penalty
        ),
    )  # fmt: skip


def cache_bytes(c: ModelConfig, layout: Layout, prompt_length: int, T: int, dtype: DTypeLike, mesh: Mesh) -> int:
    """Bytes of keys and values on one device, with its share of blocks.

    Each block holds its prompt, padded to its bucket, and T tokens of each of its rollouts.
    """
    blocks, g = layout.rows.shape
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    return kv_bytes(c, dtype, mesh) * (blocks * bucket(prompt_length) + blocks * g * T) // shards


# ---------------------------------------------------------------- lowering


def lower_first_chunk(
    config: ModelConfig, weights: Params, layout: Layout, sharding: NamedSharding, *, prompt_length: int,
    max_new_tokens: int, chunk_size: int, drawing: Drawing,
) -> jax.stages.Lowered:  # fmt: skip
    """Lowers the program with which `generate` begins a layout's rollouts: prefill, and decoding of a chunk.

    Args:
      weights: unstacked shapes.
      drawing: of its `eos_ids` only the number matters.
    """
    C = min(chunk_size, max_new_tokens)
    rows = _sampler_rows(layout, bucket(prompt_length), sharding)
    room = None if chunk_size >= max_new_tokens else capacity(C, C, max_new_tokens)
    scalars = _scalars(sharding)
    return begin.lower(config, weights, *rows, *scalars, length=C, drawing=drawing, capacity=room)


def lower_last_chunk(
    config: ModelConfig, weights: Params, layout: Layout, sharding: NamedSharding, *, prompt_length: int,
    max_new_tokens: int, chunk_size: int, drawing: Drawing,
) -> jax.stages.Lowered:  # fmt: skip
    """Lowers the program that `generate` runs on a layout's rollouts at their last chunk, which has the longest cache.

    Arguments are those of `lower_first_chunk`; there is more than one chunk.
    """
    rows = _sampler_rows(layout, bucket(prompt_length), sharding)
    key, temperature = _scalars(sharding)
    start = functools.partial(begin, config, length=chunk_size, drawing=drawing, capacity=max_new_tokens)
    _, blocks = jax.eval_shape(start, weights, *rows, key, temperature)
    position = temperature.update(dtype="int32")
    return proceed.lower(
        config, weights, placed(blocks, sharding), key, temperature, position, length=chunk_size, drawing=drawing
    )


def _scalars(sharding: NamedSharding) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Shapes of the random key and the temperature."""
    whole = NamedSharding(sharding.mesh, P())
    return jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), "float32", sharding=whole)


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
