"""Decoding and update in bfloat16 on one accelerator, beside its memory bandwidth and matrix rate, in a few minutes."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp

from benchmark.machine import matmul_flops_per_s, median_seconds, memory_bytes_per_s
from benchmark.ours import random_batch
from pods_jax.config.schema import ObjectiveConfig, OptimizerConfig
from pods_jax.learner import init_state, make_optimizer, make_update
from pods_jax.models import Decoder, init_params
from pods_jax.models.decoder import ModelConfig
from pods_jax.parallel import make_mesh
from pods_jax.planning import flops
from pods_jax.rollout import generate
from pods_jax.rollout.layout import kv_bytes


def run(
    c: ModelConfig, *, counts: list[int], rows: list[int], S: int, T: int, budget_s: float, probe_bytes: int
) -> list[dict[str, Any]]:
    """Measures decoding with each of `counts` completions of a prompt, and updates on each of `rows`; one row each.

    Args:
      S, T: tokens of prompt and completion.
      budget_s: no measurement starts later.
      probe_bytes: size of the array that measures the memory's bandwidth.
    """
    start = time.monotonic()
    bandwidth = memory_bytes_per_s(probe_bytes)
    peak = matmul_flops_per_s("bfloat16")
    table = [{"work": "limits", "bytes_per_s": bandwidth, "flops_per_s": peak}]
    work = [functools.partial(decode_row, c, n, S, T, bandwidth) for n in counts]
    work += [functools.partial(update_row, c, m, S, T, peak) for m in rows]
    for measure in work:
        if time.monotonic() - start < budget_s:
            table.append(measure())
    return table


def decode_row(c: ModelConfig, n: int, S: int, T: int, bandwidth: float, repeats: int = 3) -> dict[str, Any]:
    """Tokens a second beyond the prefill, and the share of the bandwidth that the least possible reads take."""
    model = Decoder(c)
    params = init_params(model, jax.random.key(0), "bfloat16")
    options = {"num_generations": n, "key": jax.random.key(0)}
    sample = functools.partial(generate, model, params, [list(range(3, 3 + S))], **options)
    prefill_s = median_seconds(lambda: sample(max_new_tokens=1), repeats)
    all_s = median_seconds(lambda: sample(max_new_tokens=T), repeats)
    step_s = (all_s - prefill_s) / (T - 1)
    limit_s = decode_step_bytes(c, n, S, T, "bfloat16") / bandwidth
    return {"work": f"decode, n = {n}", "tokens_per_s": n / step_s, "of_limit": limit_s / step_s}


def decode_step_bytes(c: ModelConfig, n: int, S: int, T: int, dtype: str) -> float:
    """Bytes that the average decoding step of n rollouts of one prompt must read.

    These are the matrices of all layers and the head once, and the keys and values that are there: those of the prompt
    once, and T / 2 tokens of each rollout. A tied embedding is read as the head.
    """
    weights = c.num_hidden_layers * flops.layer_matrix_entries(c) + c.hidden_size * c.vocab_size
    return jnp.dtype(dtype).itemsize * weights + kv_bytes(c, dtype) * (S + n * T / 2)


def update_row(c: ModelConfig, m: int, S: int, T: int, peak: float, repeats: int = 3) -> dict[str, Any]:
    """Completion tokens a second of updates with float32 weights, and their model FLOPs utilisation."""
    model = Decoder(c, remat="full", compute_dtype="bfloat16")
    mesh = make_mesh(1, 1, 1)
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
    mfu = flops.model_update_flops(c, 1, m, S, T) / seconds / peak
    return {"work": f"update, m = {m}", "tokens_per_s": m * T / seconds, "of_limit": mfu}
