"""The noise scale of a run's policy, measured on rollouts of its own: training is the same with it and without it."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pods_jax.errors import UserError
from pods_jax.groups import Group, Prompt, Request, subset
from pods_jax.learner.batch import Kept, block_size, blocks_of, make_batch
from pods_jax.learner.group_gradients import Rows
from pods_jax.noise_scale import NoiseScale, estimate
from pods_jax.parallel import num_shards
from pods_jax.rollout.engine import serving
from pods_jax.training.experience import orders_of, training_params, verified_groups
from pods_jax.training.reference import penalised
from pods_jax.training.run import Run, group_gradients_of
from pods_jax.training.step import completed, select_groups

GROUPS = 2
"""Groups of a prompt: the least that tell what prompts disagree on from what a prompt's rollouts disagree on."""
_KEY = 0x6E6F6973
"""Names the random keys of measurements; those of a step are the first two beneath its key."""


class Measurement(NamedTuple):
    """A measured noise scale.

    Attributes:
      scale: the estimate.
      metrics: its numbers under `noise_scale/*`.
      record: the line of noise_scale.jsonl without its step: signal, inter, intra, their covariance and the number of
        values; n, m; "successes": the number of right rollouts of each prompt, out of "rollouts".
    """

    scale: NoiseScale
    metrics: dict[str, float]
    record: dict[str, Any]


def measure(run: Run, step: int) -> Measurement:
    """The noise scale of the policy before a step, over training prompts drawn at random.

    Each prompt gets two groups, each of rollout.num_generations rollouts and selected from as in training, whatever the
    allocator would give it. It follows from seed, step and policy, and changes nothing of the run.

    Raises:
      UserError: fewer than two training prompts.
    """
    groups, select_key = _groups(run, step)
    kept, _ = select_groups(run.config, groups, select_key)
    batch = completed(run, make_batch(run.config, kept, num_shards(run.mesh)), first=True)
    programs = group_gradients_of(run.config, run.model, run.mesh)
    scale = estimate(programs.moments(run.state.params, run.base, batch, _rows_of(kept, block_size(run.config))))
    return Measurement(scale, _metrics(scale), _record(run, scale, groups))


def _groups(run: Run, step: int) -> tuple[list[Group], jax.Array]:
    """GROUPS groups of each prompt, one after the other; and the key of their selection."""
    config = run.config
    n = config.rollout.num_generations
    root = jax.random.fold_in(jax.random.fold_in(jax.random.key(config.seed), step), _KEY)
    sample_key, select_key = jax.random.split(root)
    requests = [Request(prompt, GROUPS * n) for prompt in _prompts(run, step)]
    examples = run.rewarder.examples_of([request.prompt for request in requests])
    with serving(run.engine, run.version):
        completions = run.generate(orders_of(requests, sample_key), training_params(config.rollout), examples)
    whole = verified_groups(run.rewarder, requests, completions, run.version)
    if config.objective.reward_beta:
        whole = penalised(config, whole, run.scorer, run.ref_params, run.mesh)
    return [subset(g, np.arange(k * n, (k + 1) * n)) for g in whole for k in range(GROUPS)], select_key


def _prompts(run: Run, step: int) -> list[Prompt]:
    """Training prompts, drawn without replacement."""
    train = run.data.train
    count = min(run.config.diagnostics.noise_scale_num_prompts, len(train.examples))
    if count < 2:
        raise UserError("diagnostics.noise_scale_every_steps compares prompts: it needs two training prompts or more")
    rng = np.random.default_rng([run.config.seed, step, _KEY])
    chosen = rng.choice(len(train.examples), count, replace=False)
    examples = [(int(i), train.examples[i]) for i in chosen]
    return [Prompt(uid, i, x.prompt, x.gold, x.kind, tuple(train.tokens[i])) for uid, (i, x) in enumerate(examples)]


def _rows_of(kept: Sequence[Kept], size: int) -> list[list[Rows]]:
    """The blocks of a batch that hold each group, by prompt."""
    counts = [0 if k.idle else len(blocks_of(k, size)) for k in kept]
    ends = list(itertools.accumulate(counts))
    rows = [range(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return [rows[i : i + GROUPS] for i in range(0, len(rows), GROUPS)]


def _metrics(scale: NoiseScale) -> dict[str, float]:
    total, inter, intra = scale.in_prompts
    low, high = scale.interval()
    found = {
        "prompts": total, "low": low, "high": high, "inter": inter, "intra": intra, "signal": scale.signal,
        "inter_trace": scale.inter, "intra_trace": scale.intra,
    }  # fmt: skip
    return {f"noise_scale/{name}": float(value) for name, value in found.items()}


def _record(run: Run, scale: NoiseScale, groups: Sequence[Group]) -> dict[str, Any]:
    right = np.reshape([g.correct.sum() for g in groups], (-1, GROUPS)).sum(1)
    return {
        "signal": scale.signal,
        "inter": scale.inter,
        "intra": scale.intra,
        "covariance": scale.covariance.tolist(),
        "count": scale.count,
        "n": run.config.rollout.num_generations,
        "m": run.config.selection.num_kept,
        "successes": right.astype(int).tolist(),
        "rollouts": GROUPS * run.config.rollout.num_generations,
    }
