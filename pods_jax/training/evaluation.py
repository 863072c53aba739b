"""Accuracy on the test problems: k samples at a temperature, and greedy."""

import math
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from pods_jax.config.schema import Config
from pods_jax.models.decoder import Params
from pods_jax.rewards import FORMATS
from pods_jax.rollout import Completions
from pods_jax.rollout.sampler import DRAWING
from pods_jax.training.checkpoint import restored_run
from pods_jax.training.experience import Rewarder, Verified, gathered
from pods_jax.training.prompts import TokenisedExamples
from pods_jax.training.reporting import Reporter
from pods_jax.training.run import Run


def evaluate(run: Run) -> dict[str, float]:
    """Means over test problems, each problem's samples averaged first. Keys:

    accuracy, format, both (correct and fully formatted), mean_length, truncated of the samples; accuracy/KIND for each
    kind of problem; with several samples pass@K (see `pass_at`) for K = 1, 2, 4, ... and their number, and maj@K of all
    (see `majority`); greedy_accuracy, greedy_format, greedy_both; the same with PREFIX/ before for each of
    `evaluation.sets`. The random keys are the same in every evaluation.
    """
    params = run.sampling_params()
    sets = run.config.evaluation.parsed_sets()[0]
    metrics = _scored(run, params, run.data.test, run.config.evaluation.num_samples)
    for prefix, test in run.data.others.items():
        found = _scored(run, params, test, sets[prefix].num_samples)
        metrics |= {f"{prefix}/{k}": v for k, v in found.items()}
    return metrics


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
    reporter.scores({"score": scores}, f"{len(run.data.test.examples)} test problems")
    return scores


def _scored(run: Run, params: Params, test: TokenisedExamples, num_samples: int) -> dict[str, float]:
    """`evaluate` on one set."""
    metrics = {}
    if num_samples:
        sampled = _scores(run, params, test, num_samples, run.config.evaluation.temperature)
        metrics |= {k: float(v.mean()) for k, v in sampled.items()}
        metrics |= _by_kind([x.kind for x in test.examples], sampled["accuracy"])
    if not run.config.evaluation.greedy:
        return metrics
    greedy = _scores(run, params, test, 1, 0.0)
    return metrics | {f"greedy_{k}": float(greedy[k].mean()) for k in ("accuracy", "format", "both")}


def _by_kind(kinds: Sequence[str], accuracy: np.ndarray) -> dict[str, float]:
    names = sorted(set(kinds) - {""})
    return {f"accuracy/{k}": float(accuracy[np.array(kinds) == k].mean()) for k in names}


def _scores(
    run: Run, params: Params, test: TokenisedExamples, num_samples: int, temperature: float
) -> dict[str, np.ndarray]:
    """Scores [num_prompts] by name, averaged over the samples; a batch is verified while the next is generated."""
    e = run.config.evaluation
    total = len(test.examples)
    options = {name: getattr(e, name) for name in DRAWING} | {"temperature": temperature}
    options |= {"num_generations": num_samples, "max_new_tokens": e.max_completion_length}
    options["stop"] = run.config.rollout.stop if e.stop is None else e.stop
    with DaemonThread() as thread:
        batches = []
        for start in range(0, total, e.batch_size):
            ids = range(start, min(start + e.batch_size, total))
            key = jax.random.key(run.config.seed)
            c = run.sampler(params, [test.tokens[i] for i in ids], list(ids), key, **options)
            batches.append((c, thread.submit(run.rewarder.verify_share, c, [test.examples[i] for i in ids])))
        scores = [_batch_scores(run.rewarder, c, gathered(verified.result())) for c, verified in batches]
    return {k: np.concatenate([s[k] for s in scores]) for k in scores[0]}


def _batch_scores(rewarder: Rewarder, completions: Completions, verified: Verified) -> dict[str, np.ndarray]:
    """Scores [P] of one batch, averaged over the samples."""
    form = FORMATS[rewarder.config.format]
    formatted = np.array([form(rewarder.prefill + text) for text in verified.texts])
    scores = {
        "accuracy": verified.correct,
        "format": formatted,
        "both": verified.correct & (formatted == 1.0),
        "mean_length": completions.lengths,
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


class DaemonThread:
    """Calls functions one after the other, in a thread that keeps no process alive.

    A reward function of the user's may hang: an interrupted evaluation does not wait for it, as an executor would.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._run, name="verify", daemon=True).start()

    def __enter__(self) -> "DaemonThread":
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)

    def submit(self, function: Callable, *arguments: Any) -> Future:
        """The result of the call, in the future."""
        future: Future = Future()
        self._calls.put((future, function, arguments))
        return future

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, arguments = call
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)
