"""Throughput of task "math" beside Math-Verify, in one run: python experiments/benchmark_rewards.py COMPLETIONS.jsonl

The file has a line {"completion", "gold"} for each output; needs `pip install math-verify==0.9.0`. Reported: calls a
second of each in this process (in turns, the best of three), how often their verdicts agree, and calls a second of the
pool on the outputs that go to workers, by the number of workers, with this process's own share of the time. --json
ends with a one-line summary.
"""

import argparse
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pods_jax.cli import main_with_errors
from pods_jax.errors import UserError
from pods_jax.rewards import VERIFIERS, RewardPool

REPEATS = 3
MIN_POOL_CALLS = 20_000

Pair = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("completions", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    pairs = read_pairs(args.completions)
    summary = beside_math_verify(pairs) | by_workers(pairs)
    for name, value in summary.items():
        print(f"{name:36} {value:12,.2f}")
    if args.json:
        print(json.dumps(summary))


def read_pairs(path: Path) -> list[Pair]:
    """(completion, gold) of every line."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(row["completion"], row["gold"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: no lines with 'completion' and 'gold': {error}") from error


def beside_math_verify(pairs: Sequence[Pair]) -> dict[str, float]:
    """Calls a second and agreement, extraction and parsing of the gold included on both sides."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    judges: dict[str, Callable[[str, str], bool]] = {
        "math_verify": lambda output, gold: bool(verify(parse(f"${gold}$"), parse(output))),
        "math": lambda output, gold: VERIFIERS["math"].judge(output, gold).correct,
    }
    rates, verdicts = dict.fromkeys(judges, 0.0), {}
    for _ in range(REPEATS):
        for name, judge in judges.items():
            start = time.perf_counter()
            verdicts[name] = [judge(*pair) for pair in pairs]
            rates[name] = max(rates[name], len(pairs) / (time.perf_counter() - start))
    agreed = sum(map(bool.__eq__, *verdicts.values())) / len(pairs)
    summary = {f"{name}/calls_per_s": rate for name, rate in rates.items()}
    return summary | {"speed_up": rates["math"] / rates["math_verify"], "agreement": agreed}


def by_workers(pairs: Sequence[Pair]) -> dict[str, float]:
    """Calls a second of the pool on the pairs that the quick layer leaves to workers."""
    open_pairs = [pair for pair in pairs if VERIFIERS["math"].quick(*pair) is None]
    outputs, golds = zip(*(open_pairs * -(-MIN_POOL_CALLS // len(open_pairs))), strict=True)
    rates = {"left_to_workers": len(open_pairs) / len(pairs)}
    for num_workers in sorted({1, 2, os.cpu_count() or 1}):
        with RewardPool(num_workers) as pool:
            pool.score(outputs[: 64 * num_workers], golds[: 64 * num_workers], "math")  # starts the workers
            start, start_cpu = time.perf_counter(), time.process_time()
            pool.score(outputs, golds, "math")
            wall_s, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
            rates[f"pool/{num_workers}_workers/calls_per_s"] = len(outputs) / wall_s
            rates[f"pool/{num_workers}_workers/caller_us"] = cpu_s / len(outputs) * 1e6
    return rates


if __name__ == "__main__":
    main_with_errors(main)
