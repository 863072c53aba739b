"""One training step: allocate, sample, verify, select, update."""

import jax
import numpy as np

from pods_jax.allocation.base import Exhausted
from pods_jax.learner import Batch
from pods_jax.learner.optimizer import make_schedule
from pods_jax.parallel import batch_sharding, num_shards, place
from pods_jax.records import Group
from pods_jax.training.accounts import count_trained, settle
from pods_jax.training.batching import make_batch, select_groups
from pods_jax.training.metrics import candidate_metrics, rollout_metrics, staleness_metrics
from pods_jax.training.reference import reference_logprobs
from pods_jax.training.rounds import collect_groups
from pods_jax.training.run import Metrics, Run


class Diverged(Exception):
    """So many updates in a row were skipped that going on is pointless; batch: the last one's."""

    def __init__(self, batch: Batch):
        super().__init__("the loss or its gradient was not finite")
        self.batch = batch


def train_step(run: Run, step: int) -> tuple[Metrics, list[Group]]:
    """One pass of allocate, sample, verify, select, update. Returns metrics and the groups trained on.

    Where the allocator has no more to give, `run.ended` says why, nothing was updated, and both are empty.
    """
    sample_key, select_key = jax.random.split(jax.random.fold_in(jax.random.key(run.config.seed), step))
    try:
        generated, groups = collect_groups(run, sample_key, step)
    except Exhausted as reason:
        run.ended = str(reason)
        settle(run.totals, run.allocator.held())
        return {}, []
    with run.clock.phase("select"):
        kept, metrics = select_groups(run.config, groups, select_key)
        batch = make_batch(run.config, kept, num_shards(run.mesh))
    with run.clock.phase("update"):
        metrics |= optimise(run, batch)
    trained = [(k.group, np.unique(k.rows)) for k in kept]
    count_trained(run.totals, [group.lengths[rows] for group, rows in trained])
    metrics |= settle(run.totals, run.allocator.held()) | run.allocator.metrics()
    metrics |= staleness_metrics([group.policy_versions[rows] for group, rows in trained], step - 1)
    metrics |= rollout_metrics(generated or groups) | candidate_metrics(generated)
    return metrics | {"learning_rate": _learning_rate(run, step)}, groups


def _learning_rate(run: Run, step: int) -> float:
    """Of the step's first update."""
    per_step = run.config.objective.num_iterations
    schedule = make_schedule(run.config.optimizer, run.config.training.num_steps * per_step)
    return float(schedule((step - 1) * per_step))


def optimise(run: Run, batch: Batch) -> Metrics:
    """num_iterations optimizer steps on the batch.

    Unless the batch names old log-probabilities, all steps but the first take the ratio against the first's policy.

    Raises:
      Diverged: training.max_skipped_updates updates in a row were skipped.
    """
    on_host, batch = batch, place(batch, batch_sharding(run.mesh))
    if run.config.objective.loss_beta:
        references = reference_logprobs(run, batch.prompts, batch.prompt_lengths, batch.completions)
        batch = batch._replace(ref_logprobs=references)
    skipped = []
    for _ in range(run.config.objective.num_iterations):
        run.state, metrics, logprobs = run.update(run.state, batch, run.base)
        skipped.append(metrics["skipped_updates"])
        if batch.old_logprobs is None:
            batch = batch._replace(old_logprobs=logprobs)
    metrics, skipped = jax.device_get((metrics, skipped))
    for flag in skipped:
        run.skipped_in_a_row = run.skipped_in_a_row + 1 if flag else 0
    if run.skipped_in_a_row >= run.config.training.max_skipped_updates:
        raise Diverged(on_host)
    return {k: float(v) for k, v in metrics.items()} | {"skipped_updates": float(sum(skipped))}
