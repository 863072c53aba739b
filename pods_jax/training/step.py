"""One training step: allocate, sample, verify, select, update."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pods_jax.config import Config, ObjectiveConfig, SelectionConfig
from pods_jax.learner import Batch
from pods_jax.learner.optimizer import make_schedule
from pods_jax.objective import estimate_advantages
from pods_jax.parallel import batch_sharding
from pods_jax.records import Group
from pods_jax.rollout import group_logprobs
from pods_jax.rollout.buckets import bucket, pad_prompts
from pods_jax.selection import select, selection_statistics
from pods_jax.training.metrics import rollout_metrics, selection_metrics
from pods_jax.training.rollouts import rollout_groups
from pods_jax.training.run import Metrics, Run


def train_step(run: Run, step: int) -> tuple[Metrics, list[Group]]:
    """One pass of allocate, sample, verify, select, update. Returns metrics and the groups trained on."""
    sample_key, select_key = jax.random.split(jax.random.fold_in(jax.random.key(run.config.seed), step))
    groups = collect_groups(run, sample_key, step)
    with run.clock.phase("select"):
        batch, metrics = select_batch(run.config, groups, select_key)
    with run.clock.phase("update"):
        metrics |= optimise(run, batch)
    run.totals["rollouts/trained"] += batch.lengths.size
    run.totals["tokens/trained"] += int(batch.lengths.sum())
    schedule = make_schedule(run.config.optimizer, run.config.training.num_steps * run.config.objective.num_iterations)
    metrics["learning_rate"] = float(schedule((step - 1) * run.config.objective.num_iterations))
    return rollout_metrics(groups) | metrics, groups


def collect_groups(run: Run, key: jax.Array, step: int) -> list[Group]:
    """Rounds of requests and rollouts until the allocator hands over groups to train on."""
    ready: list[Group] = []
    with run.clock.phase("sample"):
        params = run.sampling_params()
    while not ready:
        groups = rollout_groups(run, params, run.allocator.requests(run.stream), key, version=step - 1)
        run.totals["rollouts/generated"] += sum(g.lengths.size for g in groups)
        run.totals["tokens/generated"] += sum(int(g.lengths.sum()) for g in groups)
        ready = run.allocator.observe(groups)
    return ready


@functools.partial(jax.jit, static_argnames=("selection", "objective"))
def _choose(rewards, key, aux, *, selection: SelectionConfig, objective: ObjectiveConfig):
    """Kept indices [P, m], their advantages, and what was selected."""
    indices = select(selection.rule, rewards, selection.num_kept, key, **aux)
    advantages = functools.partial(
        estimate_advantages, objective.advantage_estimator, scale_rewards=objective.scale_rewards, ddof=objective.ddof,
        epsilon=objective.advantage_epsilon,
    )  # fmt: skip

    def kept(x):
        return jnp.take_along_axis(x, indices, axis=1)

    if objective.statistics == "kept":  # as PODS does (Xu et al. 2025, appendix A.3)
        chosen = advantages(kept(rewards), kept(aux["lengths"]))
    else:
        chosen = kept(advantages(rewards, aux["lengths"]))
    return indices, chosen, selection_statistics(rewards, indices)


def _rule_inputs(groups: list[Group]) -> dict[str, np.ndarray]:
    """The arrays [P, n] that a selection rule may name (see `pods_jax.selection.rules`)."""
    lengths = np.stack([g.lengths for g in groups])
    logprobs = np.stack([g.logprobs for g in groups])
    own = np.arange(logprobs.shape[-1]) < lengths[..., None]
    return {"lengths": lengths, "entropies": -np.where(own, logprobs, 0.0).sum(-1) / np.maximum(lengths, 1)}


def select_batch(config: Config, groups: list[Group], key: jax.Array) -> tuple[Batch, Metrics]:
    """The kept rollouts of every group with their advantages, as host arrays; completions trimmed to a bucket."""
    rewards = np.stack([g.rewards for g in groups])
    indices, advantages, stats = jax.device_get(
        _choose(rewards, key, _rule_inputs(groups), selection=config.selection, objective=config.objective)
    )

    def kept(field: str) -> np.ndarray:
        return np.stack([getattr(g, field)[i] for g, i in zip(groups, indices, strict=True)])

    lengths = kept("lengths")
    T = trimmed_length(int(lengths.max()), config.rollout.max_completion_length)
    prompts, prompt_lengths = pad_prompts([g.request.prompt.tokens for g in groups])
    batch = Batch(
        prompts=prompts[: len(groups)],
        prompt_lengths=prompt_lengths[: len(groups)],
        completions=kept("tokens")[..., :T],
        lengths=np.where(kept("truncated"), 0, lengths) if config.objective.mask_truncated_completions else lengths,
        advantages=advantages,
        behaviour_logprobs=kept("logprobs")[..., :T],
    )
    return batch, selection_metrics(stats, kept("rewards"))


def trimmed_length(longest: int, limit: int) -> int:
    """The padded completion length: a bucket, at least a quarter of the limit, so that few programs are compiled."""
    return min(limit, max(bucket(longest), -(-limit // 4)))


def optimise(run: Run, batch: Batch) -> Metrics:
    """num_iterations optimizer steps on the batch; all but the first take the ratio against the first's policy."""
    batch = jax.device_put(batch, batch_sharding(run.mesh))
    if run.ref_params is not None:
        batch = batch._replace(ref_logprobs=_reference_logprobs(run, batch))
    for _ in range(run.config.objective.num_iterations):
        run.state, metrics, logprobs = run.update(run.state, batch, run.base)
        if batch.old_logprobs is None:
            batch = batch._replace(old_logprobs=logprobs)
    return {k: float(v) for k, v in jax.device_get(metrics).items()}


def _reference_logprobs(run: Run, batch: Batch) -> jax.Array:
    return _score(
        run.model,
        run.ref_params,
        batch.prompts,
        batch.prompt_lengths,
        batch.completions,
        temperature=run.config.rollout.temperature,
        chunk_size=run.config.optimizer.logprob_chunk_size,
    ).logprobs


_score = jax.jit(group_logprobs, static_argnames=("model", "temperature", "chunk_size"))
