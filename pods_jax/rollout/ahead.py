"""The sampler's largest program, lowered from shapes alone, to be compiled before there is a device."""

import functools

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pods_jax.models.decoder import ModelConfig, Params
from pods_jax.rollout.attention import Cache
from pods_jax.rollout.blocks import Layout
from pods_jax.rollout.buckets import bucket
from pods_jax.rollout.decode import Blocks, Drawing, begin, proceed


def lower(
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
