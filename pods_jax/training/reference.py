"""The reference policy: its log-probabilities, and the KL to it as a penalty in the reward."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pods_jax.config import Config
from pods_jax.models import Decoder
from pods_jax.parallel import batch_sharding, num_shards, place, to_host
from pods_jax.records import Group
from pods_jax.rollout.buckets import bucket, pad_prompts
from pods_jax.rollout.scoring import group_logprobs
from pods_jax.training.run import Run

_score = jax.jit(group_logprobs, static_argnames=("model", "temperature", "chunk_size"))


def reference_logprobs(run: Run, prompts: jax.Array, prompt_lengths: jax.Array, completions: jax.Array) -> jax.Array:
    """[P, n, T], of completions [P, n, T] of prompts [P, S]."""
    model = run.model.clone(activations=batch_sharding(run.mesh))
    return _score(model, run.ref_params, prompts, prompt_lengths, completions, **_options(run.config)).logprobs


def lower(
    config: Config, model: Decoder, mesh: jax.sharding.Mesh, params: Any, rollouts: Sequence[Any]
) -> jax.stages.Lowered:
    """The program of `reference_logprobs` for shapes in place of params and (prompts, prompt_lengths, completions)."""
    return _score.lower(model.clone(activations=batch_sharding(mesh)), params, *rollouts, **_options(config))


def _options(config: Config) -> dict[str, Any]:
    return {"temperature": config.rollout.temperature, "chunk_size": config.optimizer.logprob_chunk_size}


def penalised(run: Run, groups: Sequence[Group]) -> list[Group]:
    """The groups with beta times the KL to the reference taken off their rewards.

    The KL is k1, log(behaviour / reference), summed over a completion's tokens (Ziegler et al. 2019, arXiv 1909.08593;
    REINFORCE++, Hu 2025, arXiv 2501.03262, with discount 1); it joins the parts of the reward as "kl".
    """
    rows = _laid_out(groups, num_shards(run.mesh))
    references = to_host(reference_logprobs(run, *place(rows, batch_sharding(run.mesh))))
    beta = np.float32(run.config.objective.reward_beta)
    return [
        dataclasses.replace(g, rewards=g.rewards - beta * kl, parts={**g.parts, "kl": kl})
        for g, kl in ((g, _summed_k1(g, reference)) for g, reference in zip(groups, references, strict=False))
    ]


def _laid_out(groups: Sequence[Group], shards: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prompts, their lengths, and completions [P, n, T], padded to equal groups and to a multiple of the shards."""
    prompts, lengths = pad_prompts([g.request.prompt.tokens for g in groups])
    num_groups, n = -(-len(prompts) // shards) * shards, bucket(max(len(g.tokens) for g in groups))
    completions = np.zeros((num_groups, n, groups[0].tokens.shape[1]), np.int32)
    for i, group in enumerate(groups):
        completions[i, : len(group.tokens)] = group.tokens
    extra = num_groups - len(prompts)
    return np.pad(prompts, ((0, extra), (0, 0))), np.pad(lengths, (0, extra)), completions


def _summed_k1(group: Group, reference: np.ndarray) -> np.ndarray:
    count, T = group.tokens.shape
    own = np.arange(T) < group.lengths[:, None]
    return np.where(own, group.logprobs - reference[:count], 0.0).sum(-1)
