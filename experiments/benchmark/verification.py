"""Throughput of the verifier "math" beside Math-Verify, and of the pool of workers."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pods_jax.buckets import ceil_div
from pods_jax.errors import UserError
from pods_jax.rewards import VERIFIERS, RewardPool

OutputGold = tuple[str, str]


def read_pairs(path: Path) -> list[OutputGold]:
    """The "completion" and "gold" of every line of a JSON Lines file.

    Raises:
      UserError: it is not such a file.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        pairs = [(row["completion"], row["gold"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: no lines with 'completion' and 'gold': {error}") from error
    if not pairs:
        raise UserError(f"{path}: no lines with 'completion' and 'gold': it is empty")
    return pairs


def beside_math_verify(pairs: Sequence[OutputGold], repeats: int) -> list[dict[str, Any]]:
    """Calls a second in this process, in turns, the best of `repeats`; the gold's parsing included on both sides."""
    verifiers: dict[str, Callable[[str, str], bool]] = {"math": math, "Math-Verify": math_verify()}
    rates = dict.fromkeys(verifiers, 0.0)
    correct = {}
    for _ in range(repeats):
        for name, verify in verifiers.items():
            start = time.perf_counter()
            correct[name] = [verify(*pair) for pair in pairs]
            rates[name] = max(rates[name], len(pairs) / (time.perf_counter() - start))
    ours, theirs = rates.values()
    agreement = sum(map(bool.__eq__, *correct.values())) / len(pairs)
    return [
        {"verifier": "math", "calls_per_s": ours},
        {"verifier": "Math-Verify", "calls_per_s": theirs, "speed_up": ours / theirs, "agreement": agreement},
    ]


def math(output: str, gold: str) -> bool:
    return VERIFIERS["math"].verify(output, gold).correct


def math_verify() -> Callable[[str, str], bool]:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return lambda output, gold: bool(verify(parse(f"${gold}$"), parse(output)))


def by_workers(pairs: Sequence[OutputGold], counts: Sequence[int], min_calls: int) -> list[dict[str, Any]]:
    """Throughput of the pool by number of workers, on the pairs that the quick layer leaves to them, if any.

    The pairs are repeated for at least `min_calls`. `share` is their share of all pairs, `caller_us` the calling
    process's own time for a call.
    """
    left = [pair for pair in pairs if VERIFIERS["math"].quick(*pair) is None]
    if not left:
        return []
    outputs, golds = zip(*(left * ceil_div(min_calls, len(left))), strict=True)
    rows = []
    for count in counts:
        with RewardPool(count) as pool:
            pool.score(outputs[: 64 * count], golds[: 64 * count], "math")  # starts the workers
            start = time.perf_counter()
            start_cpu = time.process_time()
            pool.score(outputs, golds, "math")
            wall_s = time.perf_counter() - start
            cpu_s = time.process_time() - start_cpu
        row = {"workers": str(count), "share": len(left) / len(pairs), "calls_per_s": len(outputs) / wall_s}
        rows.append(row | {"caller_us": cpu_s / len(outputs) * 1e6})
    return rows
