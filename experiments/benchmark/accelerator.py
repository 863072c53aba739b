"""Decoding and update in bfloat16 on one accelerator, beside its memory bandwidth and matrix rate, in a few minutes."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp

from benchmark import costs
from benchmark.hardware import matmul_flops_per_s, median_seconds, memory_bytes_per_s
from benchmark.ours import random_batch
from pods_jax.config.schema import ObjectiveConfig, OptimizerConfig
from pods_jax.learner import init_state, make_optimizer, make_update
from pods_jax.models import Decoder, init_params
from pods_jax.models.decoder import ModelConfig
from pods_jax.parallel import make_mesh
from pods_jax.rollout import generate


def run(
    c: ModelConfig, *, counts: list[int], rows: list[int], S: int, T: int, budget_s: float, probe_bytes: int
) -> list[dict[str, Any]]:
    """A row for decoding with each of `counts` completions of a prompt, and for updates on each of `rows`.

    What would start after budget_s is left out. S, T: tokens of prompt and completion; probe_bytes: of the array that
    the memory's bandwidth is measured with.
    """
    start = time.monotonic()
    bandwidth, peak = memory_bytes_per_s(probe_bytes), matmul_flops_per_s("bfloat16")
    table = [{"work": "limits", "bytes_per_s": bandwidth, "flops_per_s": peak}]
    work = [functools.partial(decode_row, c, n, S, T, bandwidth) for n in counts]
    work += [functools.partial(update_row, c, m, S, T, peak) for m in rows]
    for measure in work:
        if time.monotonic() - start < budget_s:
            table.append(measure())
    return table


def decode_row(c: ModelConfig, n: int, S: int, T: int, bandwidth: float, repeats: int = 3) -> dict[str, Any]:
    """Tokens a second beyond the prefill, and the share of the bandwidth that reading what must be read takes."""
    model = Decoder(c)
    params = init_params(model, jax.random.key(0), "bfloat16")
    options = {"num_generations": n, "key": jax.random.key(0)}
    sample = functools.partial(generate, model, params, [list(range(3, 3 + S))], **options)
    prefill_s, all_s = (median_seconds(lambda T=T: sample(max_new_tokens=T), repeats) for T in (1, T))
    step_s = (all_s - prefill_s) / (T - 1)
    limit_s = costs.decode_step_bytes(c, 1, n, S, T, 2) / bandwidth
    return {"work": f"decode, n = {n}", "tokens_per_s": n / step_s, "of_limit": limit_s / step_s}


def update_row(c: ModelConfig, m: int, S: int, T: int, peak: float, repeats: int = 3) -> dict[str, Any]:
    """Completion tokens a second of updates with float32 weights, and the model FLOPs' share of the matrix rate."""
    model, mesh = Decoder(c, remat="full", compute_dtype="bfloat16"), make_mesh(1, 1, 1)
    optimizer = make_optimizer(OptimizerConfig(), num_steps=1000)
    state = init_state(model, init_params(model, jax.random.key(0)), optimizer, mesh)
    sizes = {"micro_batch_size": None, "chunk_size": None, "max_completion_length": T}
    update = make_update(model, optimizer, ObjectiveConfig(), temperature=1.0, mesh=mesh, **sizes)
    batch = random_batch((1, m), S, T, c.vocab_size)

    def step():
        nonlocal state
        state, metrics, _ = update(state, batch)
        return jnp.float32(metrics["loss"])

    seconds = median_seconds(step, repeats)
    mfu = costs.update_flops(c, 1, m, S, T) / seconds / peak
    return {"work": f"update, m = {m}", "tokens_per_s": m * T / seconds, "of_limit": mfu}
