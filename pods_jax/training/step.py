"""One training step: allocate, sample, verify, select, update."""

import contextlib
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from pods_jax.allocation.base import Exhausted
from pods_jax.buckets import bucket
from pods_jax.config.schema import Config, ObjectiveConfig, RewardConfig
from pods_jax.data import Example
from pods_jax.errors import UserError
from pods_jax.groups import Group, Request
from pods_jax.learner import Batch
from pods_jax.learner.batch import Kept, make_batch, update_shares
from pods_jax.learner.optimizer import make_schedule
from pods_jax.objective import estimate_advantages
from pods_jax.parallel import batch_sharding, num_shards, place
from pods_jax.rewards.parts import normalize_then_sum, weights_of
from pods_jax.rollout.engine import Orders, SamplingParams
from pods_jax.rollout.sampler import OnEnded
from pods_jax.selection import select, selection_statistics
from pods_jax.training.background import Round
from pods_jax.training.early_reading import early_reading
from pods_jax.training.experience import orders_of, training_params, verified_groups
from pods_jax.training.metrics import (
    candidate_metrics,
    count_generated,
    count_trained,
    mismatch_metrics,
    rollout_metrics,
    selection_metrics,
    settle,
    staleness_metrics,
)
from pods_jax.training.reference import mixed, penalised
from pods_jax.training.run import Run, total_updates

Metrics = dict[str, float]


class Diverged(Exception):
    """training.max_skipped_updates updates in a row were skipped. batch: the last one's."""

    def __init__(self, batch: Batch):
        super().__init__("the loss or its gradient was not finite")
        self.batch = batch


def train_step(run: Run, step: int) -> tuple[Metrics, list[Kept]]:
    """One pass of allocate, sample, verify, select, update. Returns metrics and the groups, with what each one keeps.

    Where the allocator has no more to give, `run.ended` says why, nothing was updated, and both are empty.
    """
    try:
        generated, groups = collect_groups(run, step)
    except Exhausted as reason:
        run.ended = str(reason)
        settle(run.totals, run.allocator.held())
        return {}, []
    with run.clock.phase("sample"):
        run.wait_for_devices()
    with run.clock.phase("select"):
        kept, metrics = select_groups(run.config, groups, step_keys(run.config.seed, step)[1])
        shares = update_shares(run.config, kept)
    with run.clock.phase("update"):
        metrics["learning_rate"] = learning_rate(run.config, int(run.state.step))
        found, changed = optimise(run, shares)
        metrics |= found
    trained = [k for share in itertools.compress(shares, changed) for k in share]
    count_trained(run.totals, [k.group.own_lengths[np.unique(k.rows)] for k in trained])
    metrics |= settle(run.totals, run.allocator.held()) | run.allocator.metrics()
    metrics |= staleness_metrics([k.group.policy_versions[np.unique(k.rows)] for k in kept], run.version)
    metrics |= rollout_metrics(generated or groups) | candidate_metrics(generated)
    run.version = step
    return metrics, kept


def step_keys(seed: int, step: int) -> tuple[jax.Array, jax.Array]:
    """The random keys of a step's rollouts, and of its selection."""
    sample_key, select_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))
    return sample_key, select_key


def learning_rate(config: Config, num_updates: int) -> float:
    """The rate of the update after `num_updates` that changed the parameters, as the optimizer's own count has it."""
    return float(make_schedule(config.optimizer, total_updates(config))(num_updates))


# ---------------------------------------------------------------- the updates


def optimise(run: Run, shares: Sequence[Sequence[Kept]]) -> tuple[Metrics, list[bool]]:
    """num_iterations passes over the shares of the kept rollouts, an optimizer step on each.

    Unless the config names other old log-probabilities, ratios are taken against the policy before the first of these
    updates.

    Returns:
      metrics: means over the last pass's updates, without skipped ones; NaN if all were skipped.
      changed: for each share, whether one of its updates changed the parameters.

    Raises:
      Diverged: training.max_skipped_updates updates in a row were skipped.
    """
    batches = [make_batch(run.config, share, num_shards(run.mesh)) for share in shares]
    on_device = [completed(run, batch, first=i == 0) for i, batch in enumerate(batches)]
    before: list[jax.Array | None] = [batch.old_logprobs for batch in on_device]
    taken = []
    earlier = run.version * run.config.objective.updates_per_step
    for _ in range(run.config.objective.num_iterations):
        for i, batch in enumerate(on_device):
            run.state, metrics, logprobs = run.update(run.state, batch, run.base)
            taken.append(metrics)
            _sync_reference(run, earlier + len(taken))
            if batch.old_logprobs is None:
                before[i] = logprobs
                on_device[i] = batch._replace(old_logprobs=logprobs)
    taken = jax.device_get(taken)
    for metrics in taken:
        run.skipped_in_a_row = run.skipped_in_a_row + 1 if metrics["skipped_updates"] else 0
    if run.skipped_in_a_row >= run.config.training.max_skipped_updates:
        raise Diverged(batches[-1])
    skipped = np.array([metrics["skipped_updates"] for metrics in taken]).reshape(-1, len(batches)) > 0
    found = _means(taken[-len(batches) :]) | {"skipped_updates": float(skipped.sum())}
    if run.config.objective.old_logprobs == "recompute":
        found |= mismatch_metrics(before, on_device, run.version)
    return found, (~skipped.all(0)).tolist()


def _sync_reference(run: Run, num_updates: int) -> None:
    """Moves the reference towards the policy after every objective.ref_model_sync_steps updates, as TRL does.

    It is TR-DPO's soft update (Gorbatovski et al. 2024, arXiv 2404.09656). num_updates: of the run so far, with those
    that were skipped.
    """
    o = run.config.objective
    if o.sync_ref_model and num_updates % o.ref_model_sync_steps == 0:
        run.ref_params = mixed(run.ref_params, run.state.params, o.ref_model_mixup_alpha)


def completed(run: Run, batch: Batch, first: bool) -> Batch:
    """The batch on the devices, with all that its loss needs; the first one's own log-probabilities serve as old."""
    batch = place(batch, batch_sharding(run.mesh))
    rollouts = batch.prompts, batch.prompt_lengths, batch.completions
    if run.config.objective.loss_beta:
        batch = batch._replace(ref_logprobs=run.scorer(run.ref_params, *rollouts))
    if batch.old_logprobs is None and not first:
        batch = batch._replace(old_logprobs=run.scorer(run.policy_params(), *rollouts))
    quantile = run.config.objective.top_entropy_quantile
    if quantile < 1:
        entropies = run.scorer.entropies(run.policy_params(), *rollouts)
        batch = batch._replace(policy_mask=_high_entropy(entropies, batch.own_mask, 1 - quantile))
    return batch


@jax.jit
def _high_entropy(entropies: jax.Array, mask: jax.Array, quantile: float | jax.Array) -> jax.Array:
    """The tokens [P, m, T] whose entropy is at least the quantile over all tokens (Wang et al. 2025, 2506.01939)."""
    return mask & (entropies >= jnp.nanquantile(jnp.where(mask, entropies, jnp.nan), quantile))


def _means(taken: Sequence[Mapping[str, np.ndarray]]) -> Metrics:
    """Means by name over the updates that were not skipped; NaN if there are none, or where none has a number."""
    updates = [metrics for metrics in taken if not metrics["skipped_updates"]]
    return {name: _mean_of_numbers(np.array([metrics[name] for metrics in updates], float)) for name in taken[0]}


def _mean_of_numbers(values: np.ndarray) -> float:
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if numbers.size else float("nan")


# ---------------------------------------------------------------- rounds


def collect_groups(run: Run, step: int) -> tuple[list[Group], list[Group]]:
    """All groups that the step generated, one a request, and those that it trains on.

    Raises:
      Exhausted: the allocator has no more to give; what was generated till then is in the totals.
    """
    generated: list[Group] = []
    with contextlib.closing(_ahead(run, step) if run.config.rollout.ahead else _in_turn(run, step)) as rounds:
        for done in rounds:
            groups = _verified(run, done) if done.requests else []
            count_generated(run.totals, groups)
            generated += groups
            if ready := run.allocator.observe(groups):
                return generated, ready
            if not groups:
                break
    raise Exhausted(f"allocation '{run.config.allocation.name}' neither asks for rollouts nor hands over groups")


def _in_turn(run: Run, step: int) -> Iterator[Round]:
    """The step's rounds; each is generated when it is asked for, by the present policy."""
    taken: dict[int, list[range]] = defaultdict(list)
    with run.clock.phase("sample"):
        run.engine.update_params(run.version)
    try:
        while True:
            requests = run.allocator.requests(run.stream)
            claim(taken, requests)
            with early_reading(run.rewarder, requests) as early, run.clock.phase("sample"):
                task = _task(run, requests, step, early.submit)
                completions = run.generate(*task) if requests else None
            yield Round(requests, completions, run.version, early=early.result)
    finally:
        run.engine.release()


def _ahead(run: Run, step: int) -> Iterator[Round]:
    """The step's only round, which is there or under way, after the next step's was begun with the present policy."""
    with run.clock.phase("sample"):
        if (present := run.ahead.take()) is None:
            _begin(run, step)
            present = run.ahead.take()
        if step < run.config.training.num_steps:
            with contextlib.suppress(Exhausted):  # the next step says so itself
                _begin(run, step + 1)
    run.clock.add("ahead", present.seconds)
    yield present
    raise _broken_promise(run, "does not hand over its groups after one round")


def _begin(run: Run, step: int) -> None:
    """Begins to generate a step's round with the present policy, beside whatever else goes on."""
    requests = run.allocator.requests(run.stream)
    if not requests:
        raise _broken_promise(run, "asks for nothing")
    claim(defaultdict(list), requests)
    run.engine.update_params(run.version)
    version = run.version
    task = _task(run, requests, step)

    def generate() -> Round:
        try:
            return Round(requests, run.generate(*task), version)
        finally:
            run.engine.release()

    run.ahead.start(generate)


def _broken_promise(run: Run, what: str) -> UserError:
    return UserError(f"allocation '{run.config.allocation.name}' has asks_ahead = True, and {what}")


def _task(
    run: Run, requests: Sequence[Request], step: int, on_ended: OnEnded | None = None
) -> tuple[Orders, SamplingParams, list[Example]]:
    """The requests of a step as `Run.generate` takes them. on_ended: see `Orders`."""
    orders = orders_of(requests, step_keys(run.config.seed, step)[0])._replace(on_ended=on_ended)
    examples = run.rewarder.examples_of([request.prompt for request in requests])
    return orders, training_params(run.config.rollout), examples


def _verified(run: Run, done: Round) -> list[Group]:
    """The groups of a round, verified and rewarded."""
    with run.clock.phase("verify"):
        groups = verified_groups(run.rewarder, done.requests, done.completions, done.version, done.early)
    if run.config.objective.reward_beta:
        with run.clock.phase("sample"):
            run.wait_for_devices()
        with run.clock.phase("verify"):
            groups = penalised(run.config, groups, run.scorer, run.ref_params, run.mesh)
    return groups


def claim(taken: dict[int, list[range]], requests: Sequence[Request]) -> None:
    """Adds the requests' sample indices to those taken in this step, by prompt uid; none may be asked for twice.

    A rollout's random numbers are named by the step, its prompt's uid and its sample index.
    """
    for request in requests:
        new = range(request.first, request.first + request.count)
        if any(new.start < old.stop and old.start < new.stop for old in taken[request.prompt.uid]):
            raise ValueError(
                f"prompt {request.prompt.uid}: samples {new.start} to {new.stop - 1} of the {request.stage} stage were "
                "partly asked for before in this step, and would repeat: see Request.first"
            )
        taken[request.prompt.uid].append(new)


# ---------------------------------------------------------------- the choice of rollouts


def select_groups(config: Config, groups: Sequence[Group], key: jax.Array) -> tuple[list[Kept], Metrics]:
    """m rollouts of every group under the selection rule, and metrics of their rewards.

    A group that has fewer than m, or whose rule is "all", keeps all it has. Rewards that are not finite have no part in
    selection, statistics and update. With objective.mask_truncated_completions neither have truncated completions; only
    under the rule "all" their rewards are part of the statistics, and they count as sequences of the loss, as in TRL.

    Raises:
      UserError: the rule's indices are not those of rollouts.
    """
    o = config.objective
    n = bucket(max(len(g.rewards) for g in groups))
    rule = config.selection.rule
    num_kept = n if rule == "all" else min(config.selection.num_kept, n)
    rewards = _padded([_aggregated(config.reward, g) for g in groups], n, np.nan)
    lengths = _padded([g.own_lengths for g in groups], n, 0)
    masked = _padded([g.truncated for g in groups], n, 0).astype(bool) & o.mask_truncated_completions
    if rule != "all":
        rewards = np.where(masked, np.nan, rewards)
    aux = {"lengths": lengths, "entropies": _padded([_entropies(g) for g in groups], n, 0)}
    chosen = _choose(rewards, key, aux, rule=rule, num_kept=num_kept, o=o)
    rows, advantages, stats = jax.tree.map(lambda x: x[: len(groups)], jax.device_get(chosen))
    if rows.min() < 0 or rows.max() >= n:
        raise UserError(f"selection rule '{rule}' returned an index outside of a group: {rows.min()} to {rows.max()}")
    metrics = selection_metrics(groups, stats, np.take_along_axis(rewards[: len(groups)], rows, 1))
    finite = np.isfinite(rewards)
    columns = zip(groups, rows, advantages, finite, masked, strict=False)  # the last two have padding at their ends
    return [_kept(o, *column) for column in columns], metrics


def _kept(
    o: ObjectiveConfig, group: Group, rows: np.ndarray, advantages: np.ndarray, finite: np.ndarray, masked: np.ndarray
) -> Kept:
    """The usable ones of a group's chosen rows, and their place in the loss."""
    usable = (finite & ~masked)[rows]
    kept = Kept(group, rows[usable], advantages[usable], rows[(finite & masked)[rows]])
    if np.any(kept.advantages) or (o.has_other_gradients and o.zero_variance_groups == "keep"):
        return kept
    if o.zero_variance_groups == "drop":
        return Kept(group, rows[:0], advantages[:0])
    return kept._replace(idle=True)


def _aggregated(reward: RewardConfig, group: Group) -> np.ndarray:
    """The rewards [n] that selection and advantages see."""
    if reward.multi_objective_aggregation == "sum_then_normalize":
        return group.rewards
    parts = {name: values.tolist() for name, values in group.parts.items()}
    return np.array(normalize_then_sum(parts, weights_of(reward.parts)), np.float32)


@functools.partial(jax.jit, static_argnames=("rule", "num_kept", "o"))
def _choose(rewards, key, aux, *, rule: str, num_kept: int, o: ObjectiveConfig):
    """Kept indices [P, m], their advantages, and statistics of the selection; padding has NaN for a reward."""
    indices = select(rule, rewards, num_kept, key, **aux)
    advantages = functools.partial(
        estimate_advantages, o.advantage_estimator, scale_rewards=o.scale_rewards, ddof=o.ddof,
        epsilon=o.advantage_epsilon,
    )  # fmt: skip

    def kept(x):
        return jnp.take_along_axis(x, indices, axis=1)

    if o.statistics == "kept":  # as PODS does (Xu et al. 2025, appendix A.3)
        chosen = advantages(kept(rewards), kept(aux["lengths"]))
    else:
        chosen = kept(advantages(rewards, aux["lengths"]))
    return indices, chosen, selection_statistics(rewards, indices)


def _padded(rows: Sequence[np.ndarray], n: int, fill: float | int) -> np.ndarray:
    """Ragged rows as an array [P, n]; P is a bucket, too."""
    out = np.full((bucket(len(rows)), n), fill, rows[0].dtype)
    for to, row in zip(out, rows, strict=False):
        to[: len(row)] = row
    return out


def _entropies(group: Group) -> np.ndarray:
    """The mean of -log-probability over each rollout's own tokens [n] (see `pods_jax.selection.rules`)."""
    return -np.where(group.own_mask, group.logprobs, 0.0).sum(1) / np.maximum(group.own_lengths, 1)
