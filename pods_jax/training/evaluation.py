"""Accuracy on the test problems: k samples at a temperature, and greedy."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from pods_jax.config import Config
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.parallel import batch_sharding
from pods_jax.rewards import RewardPool
from pods_jax.rollout import generate
from pods_jax.training.progress import Reporter
from pods_jax.training.restore import restored_run
from pods_jax.training.rollouts import grade
from pods_jax.training.setup import Task


def evaluate(
    config: Config, task: Task, model: Decoder, params: Params, pool: RewardPool, mesh: jax.sharding.Mesh
) -> dict[str, float]:
    """Means over test problems, each problem's samples averaged first. Keys:

    accuracy, format, both (correct and fully formatted), mean_length, truncated of the samples; accuracy/KIND for each
    kind of problem; greedy_accuracy, greedy_format, greedy_both. The random keys are the same in every evaluation.
    """
    e, metrics = config.evaluation, {}
    if e.num_samples:
        sampled = _grade_all(config, task, model, params, pool, mesh, e.num_samples, e.temperature)
        metrics |= {k: float(v.mean()) for k, v in sampled.items()}
        metrics |= _by_kind([x.kind for x in task.test.examples], sampled["accuracy"])
    greedy = _grade_all(config, task, model, params, pool, mesh, 1, 0.0)
    return metrics | {f"greedy_{k}": float(greedy[k].mean()) for k in ("accuracy", "format", "both")}


def evaluate_checkpoint(config: Config, workdir: str | Path, reporter: Reporter) -> dict[str, float]:
    """Scores of the newest checkpoint in a workdir; only the `evaluation` section may differ from the run's config.

    Raises:
      UserError: the workdir holds no checkpoint, or was made by another config.
    """
    with restored_run(config, workdir, reporter, except_section="evaluation") as run:
        scores = evaluate(config, run.task, run.model, run.sampling_params(), run.pool, run.mesh)
    reporter.scores({"score": scores}, f"{len(run.task.test.examples)} test problems")
    return scores


def _by_kind(kinds: Sequence[str], accuracy: np.ndarray) -> dict[str, float]:
    names = sorted(set(kinds) - {""})
    return {f"accuracy/{k}": float(accuracy[np.array(kinds) == k].mean()) for k in names}


def _grade_all(
    config: Config, task: Task, model: Decoder, params: Params, pool: RewardPool, mesh: jax.sharding.Mesh,
    num_samples: int, temperature: float,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Per-problem scores [num_prompts], averaged over the samples."""
    key, size, batches = jax.random.key(config.seed), config.evaluation.batch_size, []
    for start in range(0, len(task.test.examples), size):
        ids = range(start, min(start + size, len(task.test.examples)))
        c = generate(
            model, params, [task.test.tokens[i] for i in ids],
            num_generations=num_samples, max_new_tokens=config.rollout.max_completion_length, key=key,
            temperature=temperature, eos_ids=task.tokenizer.eos_ids, pad_id=task.tokenizer.pad_id,
            prompt_ids=list(ids), sharding=batch_sharding(mesh),
        )  # fmt: skip
        c = jax.device_get(c)
        golds = [task.test.examples[i].gold for i in ids for _ in range(num_samples)]
        rows = c.tokens.reshape(-1, c.tokens.shape[-1])
        graded = grade(rows, c.lengths.ravel(), golds, task.dataset.task, task.tokenizer, pool, config.reward)
        both = graded.correct & (graded.format == 1.0)
        scores = {
            "accuracy": graded.correct,
            "format": graded.format,
            "both": both,
            "mean_length": c.lengths,
            "truncated": c.truncated,
        }
        batches.append({k: v.reshape(len(ids), num_samples).mean(1) for k, v in scores.items()})
    return {k: np.concatenate([b[k] for b in batches]) for k in batches[0]}
