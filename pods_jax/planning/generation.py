"""The sampler's programs, lowered for a plan: prefill with a first chunk of tokens, resumption at the last milestone,
and decoding of the last chunk."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

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
from pods_jax.rollout.attention_kernel import attention as named_attention
from pods_jax.rollout.decode import Attention, Blocks, Cache, attend, begin, proceed, resume
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import Layout, kv_bytes
from pods_jax.rollout.passes import Pass, Room, longest_passes, make_room


class Names(NamedTuple):
    """Names of the programs of a round; `early`: in passes that end before T tokens."""

    prefill: str
    resumption: str
    early: str
    sampling: str


FIRST_TURN = Names("prefill", "resumption", "early sampling", "sampling")
LATER_TURN = Names("later prefill", "later resumption", "early later turn", "later turn")


class Chunk(NamedTuple):
    """Tokens that one program decodes: their number, and the capacity of the cache."""

    one: Pass
    tokens: int
    room: int


@dataclasses.dataclass(frozen=True)
class Generation:
    """The rollouts of a step's largest round, in passes: none ends before T tokens.

    Attributes:
      counts: rollouts of each request; room: the limits of passes.
    """

    run: RunShapes
    counts: list[int]
    room: Room
    passes: list[Pass]

    def cache(self, one: Pass, capacity: int) -> int:
        """Bytes on each device of the keys and values of a pass, with room for so many tokens of each rollout."""
        dtype = self.run.sampled["embed"].dtype
        S = self.room.prompt_length
        return cache_bytes(self.run.model.config, one.layout, S, capacity, dtype, self.run.sampling_mesh)

    @property
    def first_passes(self) -> list[Pass]:
        return [one for one in self.passes if not one.start]

    @property
    def resumed_passes(self) -> list[Pass]:
        return [one for one in self.passes if one.start]

    def prefill_flops(self) -> int:
        """Arithmetic of all first passes: the prompts, and the first chunk."""
        c = self.run.model.config
        C = self.room.chunk_size
        decode = flops.decode_flops(c, sum(self.counts), self.room.prompt_length, C, (C - 1) * C)
        return flops.prefill_flops(c, len(self.counts), self.room.prompt_length) + decode

    def resumption_flops(self) -> int:
        """Arithmetic of all other passes before they decode: prompts, and the tokens that were there."""
        c = self.run.model.config
        S = self.room.prompt_length
        found = 0
        for one in self.resumed_passes:
            tokens = _rollouts(one) * one.start
            prompts = int((one.layout.prompts >= 0).sum())
            keys = S + self.room.resumed(one)
            found += flops.prefill_flops(c, prompts, S) + flops.matrix_flops(c, tokens)
            found += flops.attention_flops(c, tokens, keys)
        return found

    def chunks(self, passes: Sequence[Pass]) -> list[Chunk]:
        """The chunks of passes, after the first one of those that begin."""
        C = self.room.chunk_size
        return [
            Chunk(one, min(C, one.goal - start), self.room.capacity(start + C, one.goal))
            for one in passes
            for start in range(one.start or C, one.goal, C)
        ]

    def chunk_flops(self, chunks: Sequence[Chunk]) -> int:
        """Arithmetic of chunks."""
        c = self.run.model.config
        rows = [(_rollouts(one) * tokens, room) for one, tokens, room in chunks]
        attention = [flops.attention_flops(c, tokens, self.room.prompt_length + room) for tokens, room in rows]
        return flops.token_flops(c, sum(tokens for tokens, _ in rows)) + sum(attention)

    def growth_bytes(self, one: Pass) -> int:
        """Bytes on each device of a layer's keys and values before they grow for the last time, layer by layer."""
        C = self.room.chunk_size
        rooms = [self.room.capacity(start + C, one.goal) for start in range(one.start, one.goal, C)]
        before = max((room for room in rooms if room < rooms[-1]), default=0)
        return (self.cache(one, before) - self.cache(one, 0)) // self.run.model.config.num_hidden_layers

    def spared_bytes(self, chunks: Sequence[Chunk], compiled: Pass) -> float:
        """Bytes of the cache that a mean chunk does not read, beside the last one of the compiled pass."""
        whole = self.cache(compiled, compiled.goal)
        return float(np.mean([tokens * (whole - self.cache(one, room)) for one, tokens, room in chunks]))


def _rollouts(one: Pass) -> int:
    return int((one.layout.rows >= 0).sum())


def generation(run: RunShapes) -> Iterator[Program]:
    """The programs of `FIRST_TURN`: only "sampling" where one chunk has all tokens; else "prefill" with the first too.

    Passes that go to milestones have "resumption" and "early sampling" too. Of the chunks after the first the last one
    of a pass is compiled, which has the largest cache: for "early sampling" of the first pass, which has the most
    rollouts, for "sampling" of one that goes to T.
    """
    r = run.config.rollout
    yield from _programs(_generation(run, largest_round(run.config), r.max_prompt_length), FIRST_TURN)


def later_turns(run: RunShapes) -> Iterator[Program]:
    """The programs of `LATER_TURN`, likewise: a turn after an observation.

    The prompt of each rollout is its own, and as long as a rollout may be.
    """
    r = run.config.rollout
    rollouts = sum(largest_round(run.config))
    yield from _programs(_generation(run, [1] * rollouts, r.max_prompt_length + r.max_completion_length), LATER_TURN)


def _programs(g: Generation, names: Names) -> Iterator[Program]:
    C = g.room.chunk_size
    T = g.room.max_new_tokens
    first = g.passes[0]
    shared = {"beside": _beside(g.run)}
    weights = _weight_parts(g.run)
    yield Program(
        name=names.sampling if C == T else names.prefill,
        lower=functools.partial(_lower, lower_first_chunk, g, first),
        given=weights,
        within={"KV cache": g.cache(first, C)},
        flops=g.prefill_flops() / len(g.first_passes),
        runs=len(g.first_passes),
        unknown_trips=max(C - 1, 1),
        **shared,
    )
    if g.resumed_passes:
        last = g.passes[-1]
        yield Program(
            name=names.resumption,
            lower=functools.partial(_lower, lower_resumption, g, last),
            given=weights,
            within={"KV cache": g.cache(last, g.room.resumed(last))},
            flops=g.resumption_flops() / len(g.resumed_passes),
            runs=len(g.resumed_passes),
            **shared,
        )
    early = [one for one in g.passes if one.goal < T]
    late = [one for one in g.passes if one.goal == T]
    for name, passes in ((names.early, early), (names.sampling, late)):
        if chunks := g.chunks(passes):
            yield _chunk_program(g, name, passes[0], chunks)


def _chunk_program(g: Generation, name: str, compiled: Pass, chunks: Sequence[Chunk]) -> Program:
    return Program(
        name=name,
        lower=functools.partial(_lower, lower_last_chunk, g, compiled),
        given=_weight_parts(g.run) | {"KV cache": g.cache(compiled, compiled.goal)},
        within={},
        beside=_beside(g.run),
        flops=g.chunk_flops(chunks) / len(chunks),
        runs=len(chunks),
        unknown_trips=ceil_div(sum(chunk.tokens for chunk in chunks), len(chunks)),
        spared_bytes=g.spared_bytes(chunks, compiled),
        before=g.growth_bytes(compiled),
    )


def _beside(run: RunShapes) -> int:
    """Bytes of a run that its sampling does not see."""
    weights = _weight_parts(run)
    return sum(run.held().values()) - (weights["other weights"] if run.samples_own_embeddings() else 0)


def _generation(run: RunShapes, counts: list[int], prompt_length: int) -> Generation:
    r = run.config.rollout
    token_bytes = kv_bytes(run.model.config, run.sampled["embed"].dtype, run.sampling_mesh)
    room = make_room(
        counts, token_bytes, prompt_length, r.max_completion_length, num_shards(run.sampling_mesh), r.chunk_size,
        r.max_cache_bytes_per_device,
    )  # fmt: skip
    return Generation(run, counts, room, list(longest_passes(room, counts)))


def _weight_parts(run: RunShapes) -> dict[str, int]:
    layers = device_bytes(run.sampled["layers"])
    return {"layers, one by one": layers, "other weights": device_bytes(run.sampled) - layers}


def _lower(lower: Callable[..., jax.stages.Lowered], g: Generation, one: Pass) -> jax.stages.Lowered:
    r = g.run.config.rollout
    draws = {"min_p": r.min_p, "repetition_penalty": r.repetition_penalty, "parts": g.room.devices}
    drawing = Drawing(r.temperature == 0, r.top_k, r.top_p, (0, 1), **draws)
    sharding = batch_sharding(g.run.sampling_mesh)
    options = {} if lower is lower_resumption else {"attention": named_attention(r.attention, sharding)}
    return lower(g.run.model.config, g.run.sampled, one, g.room, sharding, drawing=drawing, **options)


def cache_bytes(c: ModelConfig, layout: Layout, prompt_length: int, T: int, dtype: DTypeLike, mesh: Mesh) -> int:
    """Bytes of keys and values on one device, with its share of blocks.

    Each block holds its prompt, padded to its bucket, and T tokens of each of its rollouts.
    """
    blocks, g = layout.rows.shape
    shards = num_shards(mesh)
    return kv_bytes(c, dtype, mesh) * (blocks * bucket(prompt_length) + blocks * g * T) // shards


# ---------------------------------------------------------------- lowering


def lower_first_chunk(
    config: ModelConfig, weights: Params, one: Pass, room: Room, sharding: NamedSharding, *, drawing: Drawing,
    attention: Attention = attend,
) -> jax.stages.Lowered:  # fmt: skip
    """Lowers the program with which `generate` begins a pass: prefill, and decoding of a chunk.

    Args:
      weights: unstacked shapes.
      drawing: of its `eos_ids` only the number matters.
    """
    C = room.chunk_size
    rows = _sampler_rows(one.layout, room.prompt_length, sharding)
    capacity = None if one.goal == C else room.capacity(C, one.goal)
    options = {"drawing": drawing, "attention": attention}
    return begin.lower(config, weights, *rows, *_scalars(sharding), length=C, capacity=capacity, **options)


def lower_resumption(
    config: ModelConfig, weights: Params, one: Pass, room: Room, sharding: NamedSharding, *, drawing: Drawing
) -> jax.stages.Lowered:
    """Lowers the program with which `generate` goes on with rollouts of passes before; arguments as above."""
    rows = _sampler_rows(one.layout, room.prompt_length, sharding)
    tokens = jax.ShapeDtypeStruct((*one.layout.rows.shape, one.start), "int32", sharding=sharding)
    width = room.width(one, config.num_attention_heads)
    return resume.lower(config, weights, *rows, tokens, drawing=drawing, capacity=room.resumed(one), width=width)


def lower_last_chunk(
    config: ModelConfig, weights: Params, one: Pass, room: Room, sharding: NamedSharding, *, drawing: Drawing,
    attention: Attention = attend, capacity: int | None = None,
) -> jax.stages.Lowered:  # fmt: skip
    """Lowers the program that `generate` runs on a pass at its last chunk, which has the longest cache.

    Arguments are those of `lower_first_chunk`; there is more than one chunk.

    Args:
      capacity: of the cache; None: that of the last chunk.
    """
    C = room.chunk_size
    rows = _sampler_rows(one.layout, room.prompt_length, sharding)
    key, temperature = _scalars(sharding)
    start = functools.partial(begin, config, length=C, drawing=drawing, capacity=capacity or one.goal)
    _, blocks = jax.eval_shape(start, weights, *rows, key, temperature)
    position = temperature.update(dtype="int32")
    return proceed.lower(
        config, weights, placed(blocks, sharding), key, temperature, position, length=C, drawing=drawing,
        attention=attention,
    )  # fmt: skip


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
