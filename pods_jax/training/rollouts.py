"""Requests to verified groups: sample on the devices, decode and verify on the host."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from pods_jax.data import Example
from pods_jax.models.decoder import Params
from pods_jax.parallel import batch_sharding
from pods_jax.records import Group, Prompt, Request
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
    num_generations: int,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
) -> Completions:
    """Completions of tokenised prompts, on the host."""
    completions = generate(
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
        sharding=batch_sharding(run.mesh),
    )
    return jax.device_get(completions)


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


def grade(run: Run, completions: Completions, examples: Sequence[Prompt | Example]) -> Graded:
    """Decodes completions [P, n, T] and verifies each against its example; results are flat, R = P n.

    Args:
      completions: on the host; the token axis has the length limit as its length.
      examples: P prompts or examples.
    """
    reward = run.config.reward
    P, n, T = completions.tokens.shape
    lengths, examples = completions.lengths.ravel(), [e for e in examples for _ in range(n)]
    rows = zip(completions.tokens.reshape(P * n, T), lengths, strict=True)
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
        truncated=completions.truncated.ravel().tolist(),
        max_length=T,
    )
    rewards, parts = compose(outputs, weights_of(reward.parts), dict(reward.functions))
    return Graded(
        texts,
        np.array(outputs.correct, bool),
        [v.reason for v in verdicts],
        np.array(rewards, np.float32),
        {name: np.array(values) for name, values in parts.items()},
    )


def rollout_groups(run: Run, params: Params, requests: Sequence[Request], key: jax.Array, version: int) -> list[Group]:
    """One verified group a request, in order; requests must ask for equal counts. version: the policy's."""
    r, prompts = run.config.rollout, [request.prompt for request in requests]
    with run.clock.phase("sample"):
        c = sample(
            run,
            params,
            [p.tokens for p in prompts],
            [p.uid for p in prompts],
            key,
            num_generations=requests[0].count,
            temperature=r.temperature,
            top_k=r.top_k,
            top_p=r.top_p,
        )
    with run.clock.phase("verify"):
        graded = grade(run, c, prompts)
    n = c.lengths.shape[1]
    rows = [slice(i * n, (i + 1) * n) for i in range(len(requests))]
    return [
        Group(
            request, c.tokens[i], c.logprobs[i], c.lengths[i], c.truncated[i], tuple(graded.texts[row]),
            graded.rewards[row], graded.correct[row], np.full(n, version), tuple(graded.reasons[row]),
            {name: values[row] for name, values in graded.parts.items()},
        )
        for i, (request, row) in enumerate(zip(requests, rows, strict=True))
    ]  # fmt: skip
