"""Requests to verified groups: sample on the devices, decode and verify on the host."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from pods_jax.config import RewardConfig, RolloutConfig
from pods_jax.data.tokenizers import Tokenizer
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.parallel import batch_sharding
from pods_jax.records import Group, Request
from pods_jax.rewards import FORMATS, RewardPool
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
    """Decoded texts with their correctness and format score in [0, 1]; one entry a completion."""

    texts: list[str]
    correct: np.ndarray
    format: np.ndarray


def grade(
    tokens: np.ndarray, lengths: np.ndarray, golds: Sequence[str], task: str,
    tokenizer: Tokenizer, pool: RewardPool, reward: RewardConfig,
) -> Graded:  # fmt: skip
    """Decodes completions [R, T] and verifies each against its gold."""
    texts = [tokenizer.decode(row[:length].tolist()) for row, length in zip(tokens, lengths, strict=True)]
    verdicts = pool.score(texts, list(golds), task, deadline_s=reward.deadline_s)
    correct = np.array([v.correct for v in verdicts])
    return Graded(texts, correct, np.array([FORMATS[reward.format](t) for t in texts]))


def rollout_groups(
    model: Decoder, params: Params, requests: Sequence[Request], key: jax.Array, version: int, task: str,
    tokenizer: Tokenizer, pool: RewardPool, rollout: RolloutConfig, reward: RewardConfig,
    mesh: jax.sharding.Mesh, clock: PhaseClock,
) -> list[Group]:  # fmt: skip
    """One verified group a request, in order; reward = 1[correct] + format_weight x format."""
    with clock.phase("sample"):
        c = sample(model, params, requests, key, rollout, tokenizer, mesh)
    with clock.phase("verify"):
        n = c.lengths.shape[1]
        golds = [r.prompt.gold for r in requests for _ in range(n)]
        graded = grade(
            c.tokens.reshape(-1, c.tokens.shape[-1]), c.lengths.ravel(), golds, task, tokenizer, pool, reward
        )
        correct = graded.correct.reshape(-1, n)
        rewards = (correct + reward.format_weight * graded.format.reshape(-1, n)).astype(np.float32)
    return [
        Group(r, c.tokens[i], c.logprobs[i], c.lengths[i], c.truncated[i], tuple(graded.texts[i * n : (i + 1) * n]),
              rewards[i], correct[i], version)
        for i, r in enumerate(requests)
    ]  # fmt: skip
