"""One pass of the sampler: chunks of tokens, with fewer blocks and a longer cache from chunk to chunk."""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Int, Key

from pods_jax.models.decoder import ModelConfig, Params
from pods_jax.parallel import place, to_host
from pods_jax.rollout.blocks import Layout, compacted
from pods_jax.rollout.buckets import bucket, pad_prompts
from pods_jax.rollout.decode import Blocks, Decoded, Drawing, begin, proceed, rearrange


@dataclasses.dataclass(frozen=True)
class Job:
    """What all passes of a call share; see `generate`. weights: unstacked."""

    config: ModelConfig
    weights: Params
    prompts: Sequence[Sequence[int]]
    prompt_ids: np.ndarray
    firsts: np.ndarray
    key: Key[jax.Array, ""]
    temperature: np.float32
    drawing: Drawing
    max_new_tokens: int
    chunk_size: int
    sharding: jax.sharding.NamedSharding | None

    @property
    def devices(self) -> int:
        """Into how many parts blocks are split."""
        return 1 if self.sharding is None else parts(self.sharding)

    def samples(self, layout: Layout) -> Int[np.ndarray, "B g"]:
        """The sample indices of a layout's rollouts; -1 is padding."""
        return np.where(layout.rows < 0, -1, self.firsts[layout.groups][:, None] + layout.rows).astype(np.int32)


def capacity(num_tokens: int, chunk_size: int, max_new_tokens: int) -> int:
    """Of a cache for so many tokens: a bucket of chunks.

    The last token is never in it; but of a multiple of 128 a TPU keeps the layout that decoding wants, and copies none.
    """
    chunks = bucket(-(-num_tokens // chunk_size))
    return min(chunks * chunk_size, max_new_tokens)


def decoded_chunks(job: Job, layout: Layout) -> Iterator[tuple[Layout, int, Decoded]]:
    """Decodes a layout's rollouts to their ends.

    Yields:
      which rollouts each chunk is of, the number of its first token, and the chunk, on the host.
    """
    T, C = job.max_new_tokens, job.chunk_size
    decoded, blocks = _begin(job, layout)
    for start in range(0, T, C):
        decoded = to_host(decoded)
        yield layout, start, decoded
        if decoded.done.all() or start + C >= T:
            return
        layout, blocks = _tightened(job, layout, blocks, ~decoded.done, min(start + 2 * C, T))
        decoded, blocks = proceed(
            job.config, job.weights, blocks, job.key, job.temperature, np.int32(T),
            length=C, drawing=job.drawing,
        )  # fmt: skip


def _begin(job: Job, layout: Layout) -> tuple[Decoded, Blocks | None]:
    padded = pad_prompts([job.prompts[p] if p >= 0 else () for p in layout.prompts], job.drawing.pad_id)
    tokens, lengths = (x[: len(layout.prompts)] for x in padded)
    ids = job.prompt_ids[layout.prompts].astype(np.uint32)
    arrays = place((tokens, lengths, ids, layout.owners, job.samples(layout)), job.sharding)
    C, T = job.chunk_size, job.max_new_tokens
    return begin(
        job.config, job.weights, *arrays, job.key, job.temperature,
        length=C, drawing=job.drawing, capacity=capacity(C, C, T) if C < T else None,
    )  # fmt: skip


def _tightened(job: Job, layout: Layout, blocks: Blocks, live: np.ndarray, num_tokens: int) -> tuple[Layout, Blocks]:
    """Only the live rollouts, in fewer blocks if that is a smaller bucket, with room for so many tokens."""
    move = compacted(layout, live, job.devices)
    arrays = place((move.origins, move.rows, job.samples(move.layout)), job.sharding)
    return move.layout, rearrange(blocks, *arrays, capacity(num_tokens, job.chunk_size, job.max_new_tokens))


def parts(sharding: jax.sharding.NamedSharding) -> int:
    """Into how many parts the leading axis is split."""
    axes = sharding.spec[0] if sharding.spec else ()
    return int(np.prod([sharding.mesh.shape[a] for a in (axes if isinstance(axes, tuple) else (axes,))]))
