"""The sampler: completions of prompts, as host arrays."""

import dataclasses
import numbers
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Key

from pods_jax.buckets import bucket, ceil_div, pad_prompts
from pods_jax.doors import refuse_key, refuse_prompts, refuse_sampling
from pods_jax.models.decoder import Decoder, ModelConfig, Params
from pods_jax.parallel import place, to_host
from pods_jax.rollout.decode import Blocks, Decoded, begin, proceed, rearrange
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import Layout, block_size, block_tokens, compacted, kv_bytes, passes, rows_that_fit
from pods_jax.rollout.stop_strings import StopStrings, stopped
from pods_jax.rollout.weights import unstacked

BLOCK_LIMIT = 4
"""Rollouts in a block where decoding goes in chunks: so few that those which are done leave whole blocks empty."""


class Completions(NamedTuple):
    """The sampler's result for P prompts with at most n rollouts of at most T tokens, on the host.

    Attributes:
      tokens: [P, n, T] token ids; the first `lengths` of a row count, the rest is padding.
      logprobs: [P, n, T] log-probabilities of the tokens at the sampling temperature, over the full vocabulary.
      lengths: [P, n] in 0..T, the end-of-sequence token counted; 0 in rows past a prompt's own number of rollouts.
      truncated: [P, n] whether the row reached T without an end-of-sequence token or a stop string.
      loss_mask: [P, n, T] the tokens that the policy sampled, in rows of several turns; None: all `lengths` of them.
      environment_rewards: [P, n] the sums of what environments gave; None without one.
      last_turns: [P, n] the number of tokens before the last turn; None: 0.
      drawn_logprobs: [P, n, T] log-probabilities of the tokens in the distribution that they were drawn from, after
        repetition penalty, top-k, top-p and min-p; None where none of these is on, and it is the full one.
    """

    tokens: Int[np.ndarray, "P n T"]
    logprobs: Float[np.ndarray, "P n T"]
    lengths: Int[np.ndarray, "P n"]
    truncated: Bool[np.ndarray, "P n"]
    loss_mask: Bool[np.ndarray, "P n T"] | None = None
    environment_rewards: Float[np.ndarray, "P n"] | None = None
    last_turns: Int[np.ndarray, "P n"] | None = None
    drawn_logprobs: Float[np.ndarray, "P n T"] | None = None

    @property
    def own_lengths(self) -> Int[np.ndarray, "P n"]:
        """The number of tokens that the policy sampled."""
        return self.lengths if self.loss_mask is None else self.loss_mask.sum(-1)


DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""Arguments of `generate` about the draw; the config's sections have them under the same names."""


def generate(
    model: Decoder,
    params: Params,
    prompts: Sequence[Sequence[int]],
    *,
    num_generations: int | np.integer | Sequence[int],
    max_new_tokens: int,
    key: Key[jax.Array, ""],
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    stops: StopStrings | None = None,
    eos_ids: Sequence[int] = (),
    pad_id: int = 0,
    absent_ids: Sequence[range] = (),
    prompt_ids: Sequence[int] | None = None,
    first_samples: Sequence[int] | None = None,
    sharding: jax.sharding.NamedSharding | None = None,
    chunk_size: int = 64,
    max_cache_bytes_per_device: int | None = None,
) -> Completions:
    """Completions of every prompt.

    A rollout depends on (key, prompt id, sample index) and the parameters, not on the other rows, padding, devices,
    chunks or passes; shapes are bucketed, so that few programs are compiled.

    Args:
      params: stacked or unstacked (`pods_jax.rollout.weights`, for which nothing is left to do here).
      prompts: token ids, no padding; at least one token each.
      num_generations: rollouts of each prompt, or of all alike; n is the largest.
      max_new_tokens: T.
      temperature: 0 takes the most probable token.
      top_k: most probable tokens that may be drawn (see `restrict`); 0: all. `logprobs` stay those of the full
        distribution, `drawn_logprobs` are those of what is left.
      top_p: least probability of the tokens that may be drawn, together; 1.0: all.
      min_p: least probability of a token that may be drawn, as a share of the most probable one's; 0.0: all.
      repetition_penalty: of the tokens in a rollout's prompt and completion (see `penalised`); 1.0 is none.
      stops: strings that end a completion, its tokens up to the first one whole in its text (None: none do).
      eos_ids: tokens that end a completion.
      absent_ids: ids that are never drawn, such as the rows with which an embedding is padded beyond the tokenizer.
      prompt_ids: names of the prompts for the random keys (default 0, 1, ...).
      first_samples: each prompt's first sample index (default 0); its rollouts have this one and the following.
      sharding: of the prompts (default: the first device); see `pods_jax.parallel.batch_sharding`.
      chunk_size: tokens after which finished rollouts are dropped and the cache grows; from T on, one program does all.
      max_cache_bytes_per_device: more rollouts than fit are decoded in several passes (None: in one).

    Raises:
      UserError: the budget does not hold one rollout; or an argument is not what is asked for above.
    """
    refuse_key(key)
    refuse_prompts(prompts, model.config.vocab_size)
    refuse_sampling(len(prompts), num_generations, max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty)
    P = len(prompts)
    T = max_new_tokens
    alike = isinstance(num_generations, numbers.Integral)
    counts = [int(count) for count in ([num_generations] * P if alike else num_generations)]
    devices, mesh = (1, None) if sharding is None else (parts(sharding), sharding.mesh)
    token_bytes = kv_bytes(model.config, params["embed"].dtype, mesh)
    longest = max(map(len, prompts))
    layouts = planned_passes(counts, token_bytes, longest, T, devices, chunk_size, max_cache_bytes_per_device)
    job = Job(
        config=model.config,
        weights=unstacked(params),
        prompts=prompts,
        prompt_ids=np.arange(P) if prompt_ids is None else np.asarray(prompt_ids),
        firsts=np.zeros(P, int) if first_samples is None else np.asarray(first_samples),
        key=key,
        temperature=np.float32(temperature or 1.0),
        drawing=Drawing(
            temperature == 0, top_k, top_p, tuple(eos_ids), pad_id, tuple(absent_ids), min_p, repetition_penalty
        ),
        stops=stops,
        max_new_tokens=T,
        chunk_size=min(chunk_size, T),
        sharding=sharding,
    )
    completions = no_completions(counts, T, pad_id)
    if job.drawing.reshapes:
        completions = completions._replace(drawn_logprobs=np.zeros_like(completions.logprobs))
    for layout in layouts:
        decode_pass(job, layout, completions)
    return completions


def planned_passes(
    counts: Sequence[int], token_bytes: int, prompt_length: int, max_new_tokens: int, devices: int, chunk_size: int,
    max_cache_bytes_per_device: int | None,
) -> list[Layout]:  # fmt: skip
    """The layouts of `generate`, one a pass.

    Args:
      counts: rollouts of each prompt.
      token_bytes: see `kv_bytes`.
      prompt_length: of the longest prompt.

    Raises:
      UserError: the budget does not hold one rollout.
    """
    T = max_new_tokens
    S = bucket(prompt_length)
    size = block_size(counts, BLOCK_LIMIT if chunk_size < T else max(counts))
    most = None
    if max_cache_bytes_per_device is not None:
        size = min(size, rows_that_fit(max_cache_bytes_per_device, token_bytes, S, T))
        most = max_cache_bytes_per_device // (token_bytes * block_tokens(size, S, T))
    return passes(counts, size, devices, most)


def no_completions(counts: Sequence[int], max_new_tokens: int, pad_id: int) -> Completions:
    """Arrays [P, n, T] of padding alone, to be filled. counts: rollouts of each of the P prompts."""
    shape = (len(counts), max(counts))
    by_token = (*shape, max_new_tokens)
    return Completions(
        tokens=np.full(by_token, pad_id, np.int32),
        logprobs=np.zeros(by_token, np.float32),
        lengths=np.zeros(shape, np.int32),
        truncated=np.zeros(shape, bool),
    )


def _collect(completions: Completions, layout: Layout, start: int, chunk: Decoded) -> None:
    """Writes a chunk of tokens, the first of which has the number `start`, to its rollouts."""
    T = completions.tokens.shape[-1]
    for name in ("tokens", "logprobs", "drawn_logprobs"):
        values, out = getattr(chunk, name), getattr(completions, name)
        if values is not None:
            layout.put(values[..., : T - start], out[..., start : start + values.shape[-1]])
    layout.put(start + chunk.lengths, completions.lengths)
    layout.put(~chunk.done, completions.truncated)


# ---------------------------------------------------------------- one pass


@dataclasses.dataclass(frozen=True)
class Job:
    """The arguments that all passes of a call share; see `generate`. weights: unstacked."""

    config: ModelConfig
    weights: Params
    prompts: Sequence[Sequence[int]]
    prompt_ids: np.ndarray
    firsts: np.ndarray
    key: Key[jax.Array, ""]
    temperature: np.float32
    drawing: Drawing
    stops: StopStrings | None
    max_new_tokens: int
    chunk_size: int
    sharding: jax.sharding.NamedSharding | None

    @property
    def devices(self) -> int:
        """Number of parts into which blocks are split."""
        return 1 if self.sharding is None else parts(self.sharding)

    def samples(self, layout: Layout) -> Int[np.ndarray, "B g"]:
        """The sample indices of a layout's rollouts; -1 is padding."""
        return np.where(layout.rows < 0, -1, self.firsts[layout.groups][:, None] + layout.rows).astype(np.int32)


def capacity(num_tokens: int, chunk_size: int, max_new_tokens: int) -> int:
    """Capacity of a cache for so many tokens: a bucket of chunks.

    The last token is never in the cache. It has room all the same: in multiples of 128 a TPU keeps the layout that
    decoding reads, and copies nothing.
    """
    chunks = bucket(ceil_div(num_tokens, chunk_size))
    return min(chunks * chunk_size, max_new_tokens)


def decode_pass(job: Job, layout: Layout, completions: Completions) -> None:
    """Decodes a layout's rollouts to their ends, into the completions."""
    T = job.max_new_tokens
    C = job.chunk_size
    decoded, blocks = _begin(job, layout)
    for start in range(0, T, C):
        decoded = to_host(decoded)
        if job.stops is not None:
            before = completions.tokens[..., :start]
            decoded = stopped(job.stops, layout, before, decoded, job.drawing.pad_id)
        _collect(completions, layout, start, decoded)
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
    C = job.chunk_size
    T = job.max_new_tokens
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
    """Number of parts into which the leading axis is split."""
    axes = sharding.spec[0] if sharding.spec else ()
    return int(np.prod([sharding.mesh.shape[a] for a in (axes if isinstance(axes, tuple) else (axes,))]))
