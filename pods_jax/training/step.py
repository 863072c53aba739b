"""One training step: allocate, sample, verify, select, update."""

from collections.abc import Sequence

import jax
import numpy as np

from pods_jax.allocation.base import Exhausted
from pods_jax.learner import Batch
from pods_jax.learner.optimizer import make_schedule
from pods_jax.parallel import batch_sharding, num_shards, place
from pods_jax.records import Group
from pods_jax.training.accounts import count_trained, settle
from pods_jax.training.batching import make_batches, select_groups
from pods_jax.training.metrics import candidate_metrics, rollout_metrics, staleness_metrics
from pods_jax.training.reference import policy_logprobs, reference_logprobs
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
        batches = make_batches(run.config, kept, num_shards(run.mesh))
    with run.clock.phase("update"):
        metrics |= optimise(run, batches)
    trained = [(k.group, np.unique(k.rows)) for k in kept]
    count_trained(run.totals, [group.lengths[rows] for group, rows in trained])
    metrics |= settle(run.totals, run.allocator.held()) | run.allocator.metrics()
    metrics |= staleness_metrics([group.policy_versions[rows] for group, rows in trained], step - 1)
    metrics |= rollout_metrics(generated or groups) | candidate_metrics(generated)
    return metrics | {"learning_rate": _learning_rate(run, step)}, groups


def _learning_rate(run: Run, step: int) -> float:
    """Of the step's first update."""
    per_step = run.config.objective.updates_per_step
    schedule = make_schedule(run.config.optimizer, run.config.training.num_steps * per_step)
    return float(schedule((step - 1) * per_step))


def optimise(run: Run, batches: Sequence[Batch]) -> Metrics:
    """num_iterations passes over the batches, an optimizer step on each; metrics are means over the last pass.

    Unless the batches name old log-probabilities, ratios are taken against the policy before the first of these steps.

    Raises:
      Diverged: training.max_skipped_updates updates in a row were skipped.
    """
    on_device = [_completed(run, batch, first=i == 0) for i, batch in enumerate(batches)]
    taken = []
    for _ in range(run.config.objective.num_iterations):
        for i, batch in enumerate(on_device):
            run.state, metrics, logprobs = run.update(run.state, batch, run.base)
            taken.append(metrics)
            if batch.old_logprobs is None:
                on_device[i] = batch._replace(old_logprobs=logprobs)
    taken = jax.device_get(taken)
    for metrics in taken:
        run.skipped_in_a_row = run.skipped_in_a_row + 1 if metrics["skipped_updates"] else 0
    if run.skipped_in_a_row >= run.config.training.max_skipped_updates:
        raise Diverged(batches[-1])
    combined = {k: _combined(k, [float(m[k]) for m in taken[-len(batches) :]]) for k in taken[-1]}
    return combined | {"skipped_updates": float(sum(m["skipped_updates"] for m in taken))}


def _completed(run: Run, batch: Batch, first: bool) -> Batch:
    """The batch on the devices, with the log-probabilities that its loss needs; the first one's own serve as old."""
    batch = place(batch, batch_sharding(run.mesh))
    rollouts = batch.prompts, batch.prompt_lengths, batch.completions
    if run.config.objective.loss_beta:
        batch = batch._replace(ref_logprobs=reference_logprobs(run, *rollouts))
    if batch.old_logprobs is None and not first:
        batch = batch._replace(old_logprobs=policy_logprobs(run, *rollouts))
    return batch


def _combined(name: str, values: Sequence[float]) -> float:
    return max(values) if name.endswith("/max") else float(np.mean(values))
