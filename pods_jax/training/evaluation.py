"""Accuracy on the test problems: k samples at a temperature, and greedy."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np

from pods_jax.config import Config, RewardConfig
from pods_jax.data import Example
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.parallel import batch_sharding
from pods_jax.rewards import FORMATS, RewardPool
from pods_jax.rollout import Completions, generate
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
    """Per-problem scores [num_prompts], averaged over the samples; a batch is verified while the next is generated."""
    key, size, total = jax.random.key(config.seed), config.evaluation.batch_size, len(task.test.examples)
    with ThreadPoolExecutor(1, thread_name_prefix="grade") as grader:
        batches = []
        for ids in (range(start, min(start + size, total)) for start in range(0, total, size)):
            c = generate(
                model, params, [task.test.tokens[i] for i in ids],
                num_generations=num_samples, max_new_tokens=config.rollout.max_completion_length, key=key,
                temperature=temperature, eos_ids=task.tokenizer.eos_ids, pad_id=task.tokenizer.pad_id,
                prompt_ids=list(ids), sharding=batch_sharding(mesh),
            )  # fmt: skip
            examples = [task.test.examples[i] for i in ids]
            batches.append(grader.submit(_scores, config.reward, task, jax.device_get(c), examples, pool))
        scores = [batch.result() for batch in batches]
    return {k: np.concatenate([s[k] for s in scores]) for k in scores[0]}


def _scores(
    reward: RewardConfig, task: Task, completions: Completions, examples: Sequence[Example], pool: RewardPool
) -> dict[str, np.ndarray]:
    """Scores [P] of one batch, averaged over the samples."""
    graded = grade(completions, examples, task.dataset.task, task.tokenizer, pool, reward)
    form = np.array([FORMATS[reward.format](text) for text in graded.texts])
    scores = {
        "accuracy": graded.correct,
        "format": form,
        "both": graded.correct & (form == 1.0),
        "mean_length": completions.lengths,
        "truncated": completions.truncated,
    }
    return {k: v.reshape(completions.lengths.shape).mean(1) for k, v in scores.items()}
