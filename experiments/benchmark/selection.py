"""Max-variance selection in one jitted call, beside the loop of the PODS authors in numpy and Python."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pods_jax.selection import select


def table_rows(groups: int, generations: int, kept: int, repeats: int, looped: int = 32) -> list[dict[str, Any]]:
    """Median seconds for all groups over repeats in turns. On a busy machine only processor seconds mean something.

    The loop is timed on `looped` groups and its time is scaled to all of them.

    Raises:
      AssertionError: the two find different variances on these.
    """
    rewards = _mixed_rewards(groups, generations)
    jitted = jax.jit(lambda r, key: select("max_variance", r, kept, key))
    on_device = jax.device_put(rewards)
    key = jax.random.key(0)
    chosen = np.asarray(jitted(on_device, key))[:looped]
    assert_equal_variances(rewards[:looped], chosen, np.stack([authors_loop(r, kept) for r in rewards[:looped]]))
    ours = []
    theirs = []
    for _ in range(repeats):
        ours.append(_seconds(lambda: jax.block_until_ready(jitted(on_device, key))))
        theirs.append(_seconds(lambda: [authors_loop(r, kept) for r in rewards[:looped]]))
    ours_s, ours_cpu_s = np.median(ours, 0)
    loop_s, loop_cpu_s = np.median(theirs, 0) * groups / min(groups, looped)
    return [
        {"side": "ours, one call", "seconds": ours_s, "processor_s": ours_cpu_s},
        {
            "side": "the authors' loop", "seconds": loop_s, "processor_s": loop_cpu_s,
            "speed_up": loop_s / ours_s, "processor_ratio": loop_cpu_s / ours_cpu_s,
        },
    ]  # fmt: skip


def authors_loop(rewards: np.ndarray, num_kept: int) -> np.ndarray:
    """Their single-device algorithm: sort, then compute the variance of every candidate anew, O(m^2)."""
    order = sorted(range(len(rewards)), key=lambda i: rewards[i], reverse=True)
    best = order[:num_kept]
    variance = np.var(rewards[best], ddof=1)
    for k in range(num_kept):
        candidate = order[:k] + order[len(order) - (num_kept - k) :]
        if (candidate_variance := np.var(rewards[candidate], ddof=1)) > variance:
            best = candidate
            variance = candidate_variance
    return np.array(best)


def assert_equal_variances(rewards: np.ndarray, *choices: np.ndarray) -> None:
    """Raises an AssertionError unless two choices of indices [P, m] have rewards of equal variance, from [P, n]."""
    variances = [np.take_along_axis(np.float64(rewards), indices, 1).var(axis=1) for indices in choices]
    np.testing.assert_allclose(*variances, rtol=1e-5)


def _mixed_rewards(groups: int, generations: int) -> np.ndarray:
    """Right or wrong, with another share of right ones in every group, and a small part of many values."""
    rng = np.random.default_rng(0)
    correct = rng.random((groups, generations)) < rng.random((groups, 1))
    return np.float32(correct + 0.1 * rng.random((groups, generations)))


def _seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Wall-clock and processor time."""
    start = time.perf_counter()
    cpu_start = time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - cpu_start
