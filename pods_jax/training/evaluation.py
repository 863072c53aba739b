"""Accuracy on the test problems: k samples at a temperature, and greedy."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np

from pods_jax.config.schema import Config
from pods_jax.models.decoder import Params
from pods_jax.rewards import FORMATS
from pods_jax.rollout import Completions
from pods_jax.training.checkpoint import restored_run
from pods_jax.training.experience import Graded, gathered, judge, sample
from pods_jax.training.reporting import Reporter
from pods_jax.training.run import Run, TokenisedExamples


def evaluate(run: Run) -> dict[str, float]:
    """Means over test problems, each problem's samples averaged first. Keys:

    accuracy, format, both (correct and fully formatted), mean_length, truncated of the samples; accuracy/KIND for each
    kind of problem; greedy_accuracy, greedy_format, greedy_both; the same with PREFIX/ before for each of
    `evaluation.sets`. The random keys are the same in every evaluation.
    """
    params, sets = run.sampling_params(), run.config.evaluation.parsed_sets()[0]
    metrics = _scored(run, params, run.task.test, run.config.evaluation.num_samples)
    for prefix, test in run.task.others.items():
        found = _scored(run, params, test, sets[prefix].num_samples)
        metrics |= {f"{prefix}/{k}": v for k, v in found.items()}
    return metrics


def _scored(run: Run, params: Params, test: TokenisedExamples, num_samples: int) -> dict[str, float]:
    """`evaluate` on one set."""
    metrics = {}
    if num_samples:
        sampled = _grade_all(run, params, test, num_samples, run.config.evaluation.temperature)
        metrics |= {k: float(v.mean()) for k, v in sampled.items()}
        metrics |= _by_kind([x.kind for x in test.examples], sampled["accuracy"])
    greedy = _grade_all(run, params, test, 1, 0.0)
    return metrics | {f"greedy_{k}": float(greedy[k].mean()) for k in ("accuracy", "format", "both")}


def evaluate_checkpoint(
    config: Config, workdir: str | Path, reporter: Reporter, checkpoint: str = "newest"
) -> dict[str, float]:
    """Scores of a checkpoint in a workdir; only the `evaluation` section may differ from the run's config.

    checkpoint: "newest", "best" or a step.

    Raises:
      UserError: the workdir holds no checkpoint, or was made by another config.
    """
    with restored_run(config, workdir, reporter, except_section="evaluation", checkpoint=checkpoint) as run:
        scores = evaluate(run)
    reporter.scores({"score": scores}, f"{len(run.task.test.examples)} test problems")
    return scores


def _by_kind(kinds: Sequence[str], accuracy: np.ndarray) -> dict[str, float]:
    names = sorted(set(kinds) - {""})
    return {f"accuracy/{k}": float(accuracy[np.array(kinds) == k].mean()) for k in names}


def _grade_all(
    run: Run, params: Params, test: TokenisedExamples, num_samples: int, temperature: float
) -> dict[str, np.ndarray]:
    """Per-problem scores [num_prompts], averaged over the samples; a batch is verified while the next is generated."""
    e, key, total = run.config.evaluation, jax.random.key(run.config.seed), len(test.examples)
    how = {"num_generations": num_samples, "temperature": temperature, "top_k": e.top_k, "top_p": e.top_p}
    with ThreadPoolExecutor(1, thread_name_prefix="grade") as grader:
        batches = []
        for ids in (range(i, min(i + e.batch_size, total)) for i in range(0, total, e.batch_size)):
            tokens, examples = ([x[i] for i in ids] for x in (test.tokens, test.examples))
            c = sample(run, params, tokens, list(ids), key, **how)
            batches.append((c, grader.submit(judge, run, c, examples)))
        scores = [_scores(run, c, gathered(judged.result())) for c, judged in batches]
    return {k: np.concatenate([s[k] for s in scores]) for k in scores[0]}


def _scores(run: Run, completions: Completions, graded: Graded) -> dict[str, np.ndarray]:
    """Scores [P] of one batch, averaged over the samples."""
    form = np.array([FORMATS[run.config.reward.format](text) for text in graded.texts])
    scores = {
        "accuracy": graded.correct,
        "format": form,
        "both": graded.correct & (form == 1.0),
        "mean_length": completions.lengths,
        "truncated": completions.truncated,
    }
    return {k: v.reshape(completions.lengths.shape).mean(1) for k, v in scores.items()}
