"""Requests to verified groups: sample on the devices, decode and verify on the host."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from pods_jax.config.schema import Config
from pods_jax.data import Example
from pods_jax.groups import Group, Prompt, Request
from pods_jax.learner.batch import Kept, block_size, blocks_of, make_batch
from pods_jax.learner.logprobs import group_logprobs
from pods_jax.learner.update import cut, joined
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.models.lora import adapt
from pods_jax.parallel import batch_sharding, num_shards, place, to_host
from pods_jax.parallel.hosts import exchange, own_share
from pods_jax.rewards.parts import Outputs, compose, weights_of
from pods_jax.rollout import Completions, generate
from pods_jax.training.run import Run


def sample(
    run: Run,
    params: Params,
    prompts: Sequence[Sequence[int]],
    prompt_ids: Sequence[int],
    key: jax.Array,
    *,
    num_generations: int | Sequence[int],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    first_samples: Sequence[int] | None = None,
) -> Completions:
    """Completions of tokenised prompts."""
    return generate(
        run.model,
        params,
        prompts,
        num_generations=num_generations,
        max_new_tokens=run.config.rollout.max_completion_length,
        key=key,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        eos_ids=run.task.tokenizer.eos_ids,
        pad_id=run.task.tokenizer.pad_id,
        prompt_ids=prompt_ids,
        first_samples=first_samples,
        sharding=batch_sharding(run.sampling_mesh),
        chunk_size=run.config.rollout.chunk_size,
        max_cache_bytes_per_device=run.config.rollout.max_cache_bytes_per_device,
    )


class Graded(NamedTuple):
    """R verified completions.

    Attributes:
      texts: decoded.
      correct: [R] raw correctness; reasons: [R] the verdicts' reasons.
      rewards: [R] the weighted sum of the parts; parts: [R] each, by name, NaN where one says nothing.
    """

    texts: list[str]
    correct: np.ndarray
    reasons: list[str]
    rewards: np.ndarray
    parts: dict[str, np.ndarray]


def grade(
    run: Run, completions: Completions, examples: Sequence[Prompt | Example], counts: Sequence[int] | None = None
) -> Graded:
    """`judge`, and what the other processes judged."""
    return gathered(judge(run, completions, examples, counts))


def judge(
    run: Run, completions: Completions, examples: Sequence[Prompt | Example], counts: Sequence[int] | None = None
) -> Graded:
    """Decodes completions [P, n, T] and verifies each against its example; results are flat, group after group.

    Of R completions in all, a process judges its own share.

    Args:
      completions: the token axis has the length limit as its length.
      examples: P prompts or examples.
      counts: how many of its n rows each example has (default: all).
    """
    reward = run.config.reward
    _, n, T = completions.tokens.shape
    counts = [n] * len(examples) if counts is None else counts
    real = np.arange(n) < np.array(counts)[:, None]
    own, examples = own_share(sum(counts)), [e for e, k in zip(examples, counts, strict=True) for _ in range(k)]
    lengths, examples = completions.lengths[real][own], examples[own]
    rows = zip(completions.tokens[real][own], lengths, strict=True)
    texts = [run.task.tokenizer.decode(row[:length].tolist()) for row, length in rows]
    golds = [example.gold for example in examples]
    verdicts = run.pool.score(texts, golds, run.task.dataset.task, deadline_s=reward.deadline_s)
    outputs = Outputs(
        texts=texts,
        prompts=[e.text if isinstance(e, Prompt) else e.prompt for e in examples],
        golds=golds,
        kinds=[e.kind for e in examples],
        correct=[v.correct for v in verdicts],
        lengths=lengths.tolist(),
        truncated=completions.truncated[real][own].tolist(),
        max_length=T,
        overlong_cache_length=reward.overlong_cache_length,
    )
    rewards, parts = compose(outputs, weights_of(reward.parts), dict(reward.functions))
    return Graded(
        texts,
        np.array(outputs.correct, bool),
        [v.reason for v in verdicts],
        np.array(rewards, np.float32),
        {name: np.array(values) for name, values in parts.items()},
    )


def gathered(own: Graded) -> Graded:
    """What all processes judged, in order. All must call it, from their main thread."""
    columns = (
        own.texts,
        own.correct.tolist(),
        own.reasons,
        own.rewards.tolist(),
        *(p.tolist() for p in own.parts.values()),
    )
    texts, correct, reasons, rewards, *parts = zip(*exchange([*zip(*columns, strict=True)]), strict=True)
    return Graded(
        list(texts),
        np.array(correct, bool),
        list(reasons),
        np.array(rewards, np.float32),
        {name: np.array(values) for name, values in zip(own.parts, parts, strict=True)},
    )


def rollout_groups(run: Run, params: Params, requests: Sequence[Request], key: jax.Array, version: int) -> list[Group]:
    """One verified group a request, in order. version: the policy's."""
    r, prompts, counts = run.config.rollout, [q.prompt for q in requests], [q.count for q in requests]
    with run.clock.phase("sample"):
        c = sample(
            run,
            params,
            [p.tokens for p in prompts],
            [p.uid for p in prompts],
            key,
            num_generations=counts,
            first_samples=[q.first for q in requests],
            temperature=r.temperature,
            top_k=r.top_k,
            top_p=r.top_p,
        )
    with run.clock.phase("verify"):
        graded = grade(run, c, prompts, counts)
    ends = np.cumsum(counts)
    return [
        Group(
            q, c.tokens[i, : q.count], c.logprobs[i, : q.count], c.lengths[i, : q.count], c.truncated[i, : q.count],
            tuple(graded.texts[row]), graded.rewards[row], graded.correct[row], np.full(q.count, version),
            tuple(graded.reasons[row]), {name: values[row] for name, values in graded.parts.items()},
        )
        for i, (q, row) in enumerate(zip(requests, map(slice, ends - counts, ends), strict=True))
    ]  # fmt: skip


# ---------------------------------------------------------------- reference and policy log-probabilities


@functools.partial(jax.jit, static_argnames=("model", "count", "temperature", "chunk_size"))
def _score(
    model: Decoder, params: Params, prompts: Int[Array, "P S"], prompt_lengths: Int[Array, " P"],
    completions: Int[Array, "P n T"], *, count: int, temperature: float, chunk_size: int | None,
) -> Float[Array, "P n T"]:  # fmt: skip
    """One of `count` micro-batches after the other."""

    def score(rows: tuple[Array, Array, Array]) -> Array:
        return group_logprobs(model, params, *rows, temperature=temperature, chunk_size=chunk_size).logprobs

    return joined(jax.lax.map(score, tuple(cut(x, count) for x in (prompts, prompt_lengths, completions))))


def reference_logprobs(run: Run, prompts: jax.Array, prompt_lengths: jax.Array, completions: jax.Array) -> jax.Array:
    """[P, n, T], of completions [P, n, T] of prompts [P, S]; as many at a time as in the update's micro-batches."""
    return _logprobs(run, run.ref_params, prompts, prompt_lengths, completions)


def policy_logprobs(run: Run, prompts: jax.Array, prompt_lengths: jax.Array, completions: jax.Array) -> jax.Array:
    """[P, n, T], of completions [P, n, T] of prompts [P, S], under the policy as it is trained."""
    params = run.state.params
    if run.base is not None:
        params = adapt(run.base, params, run.config.lora.scale)
    return _logprobs(run, params, prompts, prompt_lengths, completions)


def _logprobs(run: Run, params: Params, *rollouts: jax.Array) -> jax.Array:
    model = run.model.clone(activations=batch_sharding(run.mesh))
    return _score(model, params, *rollouts, **_options(run.config, run.mesh, rollouts[-1].shape))


def lower_reference(
    config: Config, model: Decoder, mesh: jax.sharding.Mesh, params: Any, rollouts: Sequence[Any]
) -> jax.stages.Lowered:
    """The program of `reference_logprobs` for shapes in place of params and (prompts, prompt_lengths, completions)."""
    options = _options(config, mesh, rollouts[-1].shape)
    return _score.lower(model.clone(activations=batch_sharding(mesh)), params, *rollouts, **options)


def _options(config: Config, mesh: jax.sharding.Mesh, shape: tuple[int, ...]) -> dict[str, Any]:
    size = config.optimizer.micro_batch_size_per_device
    return {
        "count": shape[0] * shape[1] // (size * num_shards(mesh)) if size else 1,
        "temperature": config.rollout.temperature,
        "chunk_size": config.optimizer.logprob_chunk_size,
    }


def penalised(run: Run, groups: Sequence[Group]) -> list[Group]:
    """The groups with beta times the KL to the reference taken off their rewards; it joins their parts as "kl"."""
    beta = np.float32(run.config.objective.reward_beta)
    return [
        dataclasses.replace(g, rewards=g.rewards - beta * kl, parts={**g.parts, "kl": kl})
        for g, kl in zip(groups, _summed_k1(run, groups), strict=True)
    ]


def _summed_k1(run: Run, groups: Sequence[Group]) -> list[np.ndarray]:
    """The KL of each of a group's rollouts, [n] for each group; they are scored in the blocks of an update.

    It is k1, log(behaviour / reference), summed over a completion's tokens (Ziegler et al. 2019, arXiv 1909.08593;
    REINFORCE++, Hu 2025, arXiv 2501.03262, with discount 1).
    """
    size = block_size(run.config)
    everything = [Kept(g, np.arange(len(g.lengths)), np.zeros(len(g.lengths), np.float32)) for g in groups]
    batch = make_batch(run.config, everything, num_shards(run.mesh))
    rows = place((batch.prompts, batch.prompt_lengths, batch.completions), batch_sharding(run.mesh))
    references = to_host(reference_logprobs(run, *rows))
    own = np.arange(references.shape[-1]) < batch.lengths[..., None]
    kls = iter(np.where(own, batch.behaviour_logprobs - references, 0.0).sum(-1))
    summed = [np.zeros(len(g.lengths), np.float32) for g in groups]
    for kept, out in zip(everything, summed, strict=True):
        for block in blocks_of(kept, size):
            out[block.rows] = next(kls)[: len(block.rows)]
    return summed
