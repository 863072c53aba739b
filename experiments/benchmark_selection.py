"""How long max-variance selection takes: one jitted call, beside the loop of the PODS authors in numpy and Python.

    python experiments/benchmark_selection.py [--groups 4096] [--generations 256] [--kept 64]

The loop is timed on a few groups and its time scaled to all of them, in turns with the call; both must find the same
variances on these.
"""

import argparse
import json
import time

import jax
import numpy as np

from pods_jax.selection import select


def authors_loop(rewards: np.ndarray, num_kept: int) -> np.ndarray:
    """Their single-device algorithm: sort, then compute the variance of every candidate anew, O(m^2)."""
    order = sorted(range(len(rewards)), key=lambda i: rewards[i], reverse=True)
    best, variance = order[:num_kept], np.var(rewards[order[:num_kept]], ddof=1)
    for k in range(num_kept):
        candidate = order[:k] + order[len(order) - (num_kept - k) :]
        if (candidate_variance := np.var(rewards[candidate], ddof=1)) > variance:
            best, variance = candidate, candidate_variance
    return np.array(best)


def benchmark(groups: int, generations: int, kept: int, looped: int = 32, repeats: int = 15) -> dict[str, float]:
    """Seconds for all groups, the median over the repeats, and the ratios: on a busy machine, believe `cpu_ratio`."""
    rng = np.random.default_rng(0)
    correct = rng.random((groups, generations)) < rng.random((groups, 1))
    rewards = np.float32(correct + 0.1 * rng.random((groups, generations)))
    ours = jax.jit(lambda r, key: select("max_variance", r, kept, key))
    on_device, key = jax.device_put(rewards), jax.random.key(0)
    chosen = np.asarray(ours(on_device, key))[:looped]
    jitted, loops = [], []
    for _ in range(repeats):
        jitted.append(_seconds(lambda: jax.block_until_ready(ours(on_device, key))))
        loops.append(_seconds(lambda: [authors_loop(r, kept) for r in rewards[:looped]]))
    theirs = np.stack([authors_loop(r, kept) for r in rewards[:looped]])
    variances = [np.take_along_axis(np.float64(rewards[:looped]), i, 1).var(axis=1) for i in (chosen, theirs)]
    np.testing.assert_allclose(*variances, rtol=1e-5)
    (jitted_s, jitted_cpu_s), (loop_s, loop_cpu_s) = np.median(jitted, 0), np.median(loops, 0) * groups / looped
    times = {"jitted_s": jitted_s, "loop_s": loop_s, "ratio": loop_s / jitted_s, "cpu_ratio": loop_cpu_s / jitted_cpu_s}
    return {name: float(value) for name, value in times.items()}


def _seconds(call) -> tuple[float, float]:
    """Wall-clock and processor time."""
    start, cpu_start = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - cpu_start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--groups", 4096), ("--generations", 256), ("--kept", 64)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    print(
        json.dumps(vars(args) | benchmark(args.groups, args.generations, args.kept) | {"device": str(jax.devices()[0])})
    )


if __name__ == "__main__":
    main()
