"""Accuracy on the test problems: k samples at a temperature, and greedy."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from pods_jax.config.schema import Config
from pods_jax.data import Example
from pods_jax.rollout import Completions
from pods_jax.rollout.engine import Orders, sampling_params, serving
from pods_jax.training.checkpoint import restored_run, untrained_run
from pods_jax.training.experience import Verified, gathered
from pods_jax.training.prompts import TokenisedExamples
from pods_jax.training.reporting import Reporter
from pods_jax.training.run import Run
from pods_jax.training.threads import DaemonThreads

Record = Callable[[Mapping[str, Any]], None]
"""Takes a completion of an evaluation, as `predictions` describes it."""


def evaluate(run: Run, record: Record | None = None) -> dict[str, float]:
    """Means over test problems, each problem's samples averaged first. Keys:

    accuracy, format, both (correct and fully formatted), mean_length, truncated of the samples; accuracy/KIND for each
    kind of problem; with several samples pass@K (see `pass_at`) for K = 1, 2, 4, ... and their number, and maj@K of all
    (see `majority`); greedy_accuracy, greedy_format, greedy_both; the same with PREFIX/ before for each of
    `evaluation.sets`. The random keys are the same in every evaluation. record: gets every completion.
    """
    sets = run.config.evaluation.parsed_sets()[0]
    run.ahead.wait()  # the engine has one policy at a time
    with serving(run.engine, run.version):
        metrics = _scored(run, run.data.test, run.config.evaluation.num_samples, _named(record, ""))
        for prefix, test in run.data.others.items():
            found = _scored(run, test, sets[prefix].num_samples, _named(record, prefix))
            metrics |= {f"{prefix}/{k}": v for k, v in found.items()}
    return metrics


def evaluate_checkpoint(
    config: Config,
    workdir: str | Path,
    reporter: Reporter,
    checkpoint: str = "newest",
    record: Record | None = None,
) -> dict[str, float]:
    """Scores of a checkpoint in a workdir, whose run had the same model and data (see `restored_run`).

    checkpoint: "newest", "best" or a step. record: as in `evaluate`.

    Raises:
      UserError: the workdir holds no checkpoint, or was made by another config.
    """
    with restored_run(config, workdir, reporter, checkpoint) as run:
        return _reported(run, reporter, record)


def evaluate_model(config: Config, reporter: Reporter, record: Record | None = None) -> dict[str, float]:
    """Scores of the policy with which a run of this config would start. record: as in `evaluate`.

    Raises:
      UserError: bad data, or no such model.
    """
    with untrained_run(config, reporter) as run:
        return _reported(run, reporter, record)


def _reported(run: Run, reporter: Reporter, record: Record | None) -> dict[str, float]:
    scores = evaluate(run, record)
    reporter.scores({"score": scores}, f"{len(run.data.test.examples)} test problems")
    return scores


def _named(record: Record | None, prefix: str) -> Record | None:
    """The same, with the data set's prefix in each record."""
    return record and (lambda fields: record({"set": prefix} | dict(fields)))


def _scored(run: Run, test: TokenisedExamples, num_samples: int, record: Record | None) -> dict[str, float]:
    """`evaluate` on one set."""
    metrics = {}
    if num_samples:
        sampled = _scores(run, test, num_samples, run.config.evaluation.temperature, record)
        metrics |= {k: float(v.mean()) for k, v in sampled.items()}
        metrics |= _by_kind([x.kind for x in test.examples], sampled["accuracy"])
    if not run.config.evaluation.greedy:
        return metrics
    greedy = _scores(run, test, 1, 0.0, record)
    return metrics | {f"greedy_{k}": float(greedy[k].mean()) for k in ("accuracy", "format", "both")}


def _by_kind(kinds: Sequence[str], accuracy: np.ndarray) -> dict[str, float]:
    names = sorted(set(kinds) - {""})
    return {f"accuracy/{k}": float(accuracy[np.array(kinds) == k].mean()) for k in names}


def _scores(
    run: Run, test: TokenisedExamples, num_samples: int, temperature: float, record: Record | None
) -> dict[str, np.ndarray]:
    """Scores [num_prompts] by name, averaged over the samples; a batch is verified while the next is generated."""
    e = run.config.evaluation
    total = len(test.examples)
    limit = e.max_completion_length or run.config.rollout.max_completion_length
    stop = run.config.rollout.stop if e.stop is None else e.stop
    sampling = sampling_params(e, max_new_tokens=limit, temperature=temperature, stop=stop)
    key = jax.random.key(run.config.seed)
    with DaemonThreads() as thread:
        batches = []
        for start in range(0, total, e.batch_size):
            ids = range(start, min(start + e.batch_size, total))
            examples = [test.examples[i] for i in ids]
            prompts = [test.tokens[i] for i in ids]
            c = run.generate(Orders(prompts, [num_samples] * len(ids), ids, [0] * len(ids), key), sampling, examples)
            batches.append((ids, c, thread.submit(run.rewarder.verify_share, c, examples)))
        done = [(ids, c, gathered(verified.result())) for ids, c, verified in batches]
    for ids, c, verified in done if record else ():
        for fields in predictions(test.examples, ids, c, verified, greedy=temperature == 0):
            record(fields)
    scores = [_batch_scores(c, verified) for _, c, verified in done]
    return {k: np.concatenate([s[k] for s in scores]) for k in scores[0]}


def predictions(
    examples: Sequence[Example], ids: Sequence[int], completions: Completions, verified: Verified, greedy: bool
) -> Iterator[dict[str, Any]]:
    """A record of each completion of the examples `ids`: problem, completion, verdict. greedy: how it was drawn."""
    num_samples = completions.lengths.shape[1]
    for row, text in enumerate(verified.texts):
        place, sample = divmod(row, num_samples)
        example = examples[ids[place]]
        yield {
            "index": ids[place],
            "prompt": example.prompt,
            "gold": example.gold,
            "kind": example.kind,
            "greedy": greedy,
            "sample": sample,
            "completion": text,
            "answer": verified.answers[row],
            "correct": bool(verified.correct[row]),
            "reason": verified.reasons[row],
            "length": int(completions.lengths[place, sample]),
            "truncated": bool(completions.truncated[place, sample]),
        }


def _batch_scores(completions: Completions, verified: Verified) -> dict[str, np.ndarray]:
    """Scores [P] of one batch, averaged over the samples."""
    scores = {
        "accuracy": verified.correct,
        "format": verified.formatted,
        "both": verified.correct & (verified.formatted == 1.0),
        "mean_length": completions.own_lengths,
        "truncated": completions.truncated,
    }
    shape = completions.lengths.shape
    means = {k: v.reshape(shape).mean(1) for k, v in scores.items()}
    if shape[1] == 1:
        return means
    correct = verified.correct.reshape(shape)
    answers = [verified.answers[i : i + shape[1]] for i in range(0, len(verified.answers), shape[1])]
    means |= {f"pass@{k}": pass_at(k, correct) for k in _powers_of_two(shape[1])}
    return means | {f"maj@{shape[1]}": majority(answers, correct)}


def _powers_of_two(n: int) -> list[int]:
    """1, 2, 4, ... below n, and n."""
    return [*(2**i for i in range(n.bit_length()) if 2**i < n), n]


def pass_at(k: int, correct: Bool[np.ndarray, "P n"]) -> Float[np.ndarray, " P"]:
    """Probability that one of k samples is right, unbiased from c right ones of n: 1 - C(n - c, k) / C(n, k).

    Chen et al. 2021 (arXiv 2107.03374), equation 1.
    """
    n = correct.shape[1]
    wrong = (~correct).sum(1)
    return np.array([1.0 - math.comb(int(w), k) / math.comb(n, k) for w in wrong])


def majority(answers: Sequence[Sequence[str | None]], correct: Bool[np.ndarray, "P n"]) -> Float[np.ndarray, " P"]:
    """Whether the most frequent answer is right; the share of right ones where several are equally frequent.

    An output without an answer has no vote (Wang et al. 2022, arXiv 2203.11171).
    """
    return np.array([_winner_is_right(a, c) for a, c in zip(answers, correct, strict=True)])


def _winner_is_right(answers: Sequence[str | None], correct: Bool[np.ndarray, " n"]) -> float:
    votes = Counter(answer for answer in answers if answer is not None)
    right = {answer for answer, ok in zip(answers, correct, strict=True) if ok}
    most = max(votes.values(), default=0)
    winners = [answer for answer, count in votes.items() if count == most]
    return sum(winner in right for winner in winners) / max(len(winners), 1)
