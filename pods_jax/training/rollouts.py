"""Requests to verified groups: sample on the devices, decode and verify on the host."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from pods_jax.config import RewardConfig, RolloutConfig
from pods_jax.data import Example
from pods_jax.data.tokenizers import Tokenizer
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.parallel import batch_sharding
from pods_jax.records import Group, Prompt, Request
from pods_jax.rewards import RewardPool
from pods_jax.rewards.parts import Outputs, compose, weights_of
from pods_jax.rollout import Completions, generate
from pods_jax.training.clock import PhaseClock


def sample(
    model: Decoder, params: Params, requests: Sequence[Request], key: jax.Array,
    rollout: RolloutConfig, tokenizer: Tokenizer, mesh: jax.sharding.Mesh,
) -> Completions:  # fmt: skip
    """Completions on the host; requests must ask for equal counts."""
    completions = generate(
        model,
        params,
        [r.prompt.tokens for r in requests],
        num_generations=requests[0].count,
        max_new_tokens=rollout.max_completion_length,
        key=key,
        temperature=rollout.temperature,
        top_k=rollout.top_k,
        top_p=rollout.top_p,
        eos_ids=tokenizer.eos_ids,
        pad_id=tokenizer.pad_id,
        prompt_ids=[r.prompt.uid for r in requests],
        sharding=batch_sharding(mesh),
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


def grade(
    completions: Completions, examples: Sequence[Prompt | Example], task: str,
    tokenizer: Tokenizer, pool: RewardPool, reward: RewardConfig,
) -> Graded:  # fmt: skip
    """Decodes completions [P, n, T] and verifies each against its example; results are flat, R = P n.

    Args:
      completions: on the host; the token axis has the length limit as its length.
      examples: P prompts or examples.
      task: the verifier.
    """
    P, n, T = completions.tokens.shape
    lengths, examples = completions.lengths.ravel(), [e for e in examples for _ in range(n)]
    rows = zip(completions.tokens.reshape(P * n, T), lengths, strict=True)
    texts = [tokenizer.decode(row[:length].tolist()) for row, length in rows]
    golds = [example.gold for example in examples]
    verdicts = pool.score(texts, golds, task, deadline_s=reward.deadline_s)
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


def rollout_groups(
    model: Decoder, params: Params, requests: Sequence[Request], key: jax.Array, version: int, task: str,
    tokenizer: Tokenizer, pool: RewardPool, rollout: RolloutConfig, reward: RewardConfig,
    mesh: jax.sharding.Mesh, clock: PhaseClock,
) -> list[Group]:  # fmt: skip
    """One verified group a request, in order."""
    with clock.phase("sample"):
        c = sample(model, params, requests, key, rollout, tokenizer, mesh)
    with clock.phase("verify"):
        graded = grade(c, [r.prompt for r in requests], task, tokenizer, pool, reward)
    n = c.lengths.shape[1]
    rows = [slice(i * n, (i + 1) * n) for i in range(len(requests))]
    return [
        Group(
            request, c.tokens[i], c.logprobs[i], c.lengths[i], c.truncated[i], tuple(graded.texts[row]),
            graded.rewards[row], graded.correct[row], version, tuple(graded.reasons[row]),
            {name: values[row] for name, values in graded.parts.items()},
        )
        for i, (request, row) in enumerate(zip(requests, rows, strict=True))
    ]  # fmt: skip
