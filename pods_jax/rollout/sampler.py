"""The sampler: completions of prompts, as host arrays."""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Key

from pods_jax.buckets import pad_prompts
from pods_jax.doors import refuse_key, refuse_prompts, refuse_sampling
from pods_jax.models.decoder import Decoder, ModelConfig, Params
from pods_jax.parallel import place, to_host
from pods_jax.rollout.attention_kernel import attention as named_attention
from pods_jax.rollout.decode import Attention, Blocks, Decoded, begin, proceed, rearrange, resume
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import Layout, Move, compacted, kv_bytes
from pods_jax.rollout.passes import Pass, Room, make_room
from pods_jax.rollout.stop_strings import StopStrings, stopped
from pods_jax.rollout.weights import unstacked


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


OnEnded = Callable[[Completions, Bool[np.ndarray, "P n"]], None]
"""Takes the completions so far, and which of them have ended: these no longer change."""

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
    attention: str = "whole",
    on_ended: OnEnded | None = None,
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
      stops: strings that end a completion, after the token with which the text has one of them whole; None: none.
      eos_ids: tokens that end a completion.
      absent_ids: ids that are never drawn, such as the rows with which an embedding is padded beyond the tokenizer.
      prompt_ids: names of the prompts for the random keys (default 0, 1, ...).
      first_samples: each prompt's first sample index (default 0); its rollouts have this one and the following.
      sharding: of the prompts (default: the first device); see `pods_jax.parallel.batch_sharding`.
      chunk_size: tokens after which finished rollouts are dropped and the cache grows; from T on, one program does all.
      max_cache_bytes_per_device: more rollouts than fit take turns (`pods_jax.rollout.passes`); None: all fit.
      attention: of the tokens that are decoded: "whole", or "kernel" (`pods_jax.rollout.attention_kernel`).
      on_ended: called before each pass that begins when some have ended.

    Raises:
      UserError: the budget does not hold one rollout; or an argument is not what is asked for above.
    """
    refuse_key(key)
    refuse_prompts(prompts, model.config.vocab_size)
    refuse_sampling(len(prompts), num_generations, max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty)
    P = len(prompts)
    alike = isinstance(num_generations, numbers.Integral)
    counts = [int(count) for count in ([num_generations] * P if alike else num_generations)]
    devices, mesh = (1, None) if sharding is None else (parts(sharding), sharding.mesh)
    token_bytes = kv_bytes(model.config, params["embed"].dtype, mesh)
    longest = max(map(len, prompts))
    drawing = Drawing(
        temperature == 0, top_k, top_p, tuple(eos_ids), pad_id, tuple(absent_ids), min_p, repetition_penalty, devices
    )
    job = Job(
        config=model.config,
        weights=unstacked(params),
        prompts=prompts,
        prompt_ids=np.arange(P) if prompt_ids is None else np.asarray(prompt_ids),
        firsts=np.zeros(P, int) if first_samples is None else np.asarray(first_samples),
        key=key,
        temperature=np.float32(temperature or 1.0),
        drawing=drawing,
        stops=stops,
        room=make_room(counts, token_bytes, longest, max_new_tokens, devices, chunk_size, max_cache_bytes_per_device),
        sharding=sharding,
        attention=named_attention(attention, sharding),
    )
    return complete(job, counts, on_ended)


def no_completions(counts: Sequence[int], max_new_tokens: int, pad_id: int) -> Completions:
    """Arrays [P, n, T] of nothing but padding, to be filled. counts: rollouts of each of the P prompts."""
    shape = (len(counts), max(counts))
    by_token = (*shape, max_new_tokens)
    return Completions(
        tokens=np.full(by_token, pad_id, np.int32),
        logprobs=np.zeros(by_token, np.float32),
        lengths=np.zeros(shape, np.int32),
        truncated=np.zeros(shape, bool),
    )


# ---------------------------------------------------------------- passes


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
    room: Room
    sharding: jax.sharding.NamedSharding | None
    attention: Attention

    def samples(self, layout: Layout) -> Int[np.ndarray, "B g"]:
        """The sample indices of a layout's rollouts; -1 is padding."""
        return np.where(layout.rows < 0, -1, self.firsts[layout.groups][:, None] + layout.rows).astype(np.int32)


def complete(job: Job, counts: Sequence[int], on_ended: OnEnded | None) -> Completions:
    """The completions of all passes. counts: rollouts of each prompt; on_ended: see `generate`."""
    T = job.room.max_new_tokens
    completions = no_completions(counts, T, job.drawing.pad_id)
    if job.drawing.reshapes:
        completions = completions._replace(drawn_logprobs=np.zeros_like(completions.logprobs))
    going = [np.arange(count) for count in counts]
    start = 0
    while start < T and any(map(len, going)):
        found = job.room.passes(going, start)
        for one in found:
            if on_ended is not None and (ended := _ended(completions)).any():
                on_ended(completions, ended)
            decode_pass(job, one, completions)
        start = found[0].goal
        going = [np.flatnonzero(group) for group in completions.truncated]
    return completions


def _ended(completions: Completions) -> Bool[np.ndarray, "P n"]:
    """True for the rollouts that no later pass continues."""
    decoded = completions.lengths > 0
    full = completions.lengths == completions.tokens.shape[-1]
    return decoded & ~completions.truncated | full


def decode_pass(job: Job, one: Pass, completions: Completions) -> None:
    """Decodes a pass's rollouts to their ends or its goal, into the completions; those at the goal are truncated."""
    layout, first, goal = one
    C = job.room.chunk_size
    decoded, blocks = _proceed(job, _resume(job, one, completions)) if first else _begin(job, one)
    for start in range(first, goal, C):
        decoded = to_host(decoded)
        if job.stops is not None:
            before = completions.tokens[..., :start]
            decoded = stopped(job.stops, layout, before, decoded, job.drawing.pad_id)
        _collect(completions, layout, start, decoded)
        if decoded.done.all() or start + C >= goal:
            return
        move = compacted(layout, ~decoded.done, job.room.devices)
        layout = move.layout
        blocks = _moved(job, move, blocks, job.room.capacity(start + 2 * C, goal))
        decoded, blocks = _proceed(job, blocks)


def _collect(completions: Completions, layout: Layout, start: int, chunk: Decoded) -> None:
    """Writes a chunk of tokens, the first of which has the number `start`, to its rollouts."""
    T = completions.tokens.shape[-1]
    for name in ("tokens", "logprobs", "drawn_logprobs"):
        values = getattr(chunk, name)
        if values is not None:
            out = getattr(completions, name)
            layout.put(values[..., : T - start], out[..., start : start + values.shape[-1]])
    layout.put(start + chunk.lengths, completions.lengths)
    layout.put(~chunk.done, completions.truncated)


# ---------------------------------------------------------------- the programs, on the devices


def _begin(job: Job, one: Pass) -> tuple[Decoded, Blocks | None]:
    C = job.room.chunk_size
    return begin(
        job.config, job.weights, *place(_starts(job, one.layout), job.sharding), job.key, job.temperature,
        length=C, drawing=job.drawing, capacity=None if one.goal == C else job.room.capacity(C, one.goal),
        attention=job.attention,
    )  # fmt: skip


def _resume(job: Job, one: Pass, completions: Completions) -> Blocks:
    arrays = *_starts(job, one.layout), one.layout.get(completions.tokens[..., : one.start])
    return resume(
        job.config, job.weights, *place(arrays, job.sharding), drawing=job.drawing,
        capacity=job.room.resumed(one), width=job.room.width(one, job.config.num_attention_heads),
    )  # fmt: skip


def _starts(job: Job, layout: Layout) -> tuple[np.ndarray | None, ...]:
    """Prompts, their lengths and names, and the blocks' owners and samples, as the programs take them."""
    padded = pad_prompts([job.prompts[p] if p >= 0 else () for p in layout.prompts], job.drawing.pad_id)
    tokens, lengths = (x[: len(layout.prompts)] for x in padded)
    ids = job.prompt_ids[layout.prompts].astype(np.uint32)
    return tokens, lengths, ids, layout.owners, job.samples(layout)


def _proceed(job: Job, blocks: Blocks) -> tuple[Decoded, Blocks]:
    return proceed(
        job.config, job.weights, blocks, job.key, job.temperature, np.int32(job.room.max_new_tokens),
        length=job.room.chunk_size, drawing=job.drawing, attention=job.attention,
    )  # fmt: skip


def _moved(job: Job, move: Move, blocks: Blocks, capacity: int) -> Blocks:
    arrays = place((move.origins, move.rows, job.samples(move.layout)), job.sharding)
    return rearrange(blocks, *arrays, capacity)


def parts(sharding: jax.sharding.NamedSharding) -> int:
    """Number of parts into which the leading axis is split."""
    axes = sharding.spec[0] if sharding.spec else ()
    return int(np.prod([sharding.mesh.shape[a] for a in (axes if isinstance(axes, tuple) else (axes,))]))
