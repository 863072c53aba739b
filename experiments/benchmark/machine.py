"""The machine of a measurement: its description, and its measured peak rates."""

import functools
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pods_jax.processor import processor_name


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """The median time of `call` to a ready result, after one call that does not count."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def matmul_flops_per_s(dtype: str, repeats: int = 10) -> float:
    """The best rate over a few sizes of square matrix products."""
    sizes = (512, 1024, 2048) if jax.default_backend() == "cpu" else (4096, 8192)
    return max(2 * n**3 / _matmul_seconds(n, dtype, repeats) for n in sizes)


def _matmul_seconds(n: int, dtype: str, repeats: int) -> float:
    a = jnp.ones((n, n), dtype)
    return median_seconds(functools.partial(jax.jit(jnp.matmul), a, a), repeats)


def memory_bytes_per_s(num_bytes: int, repeats: int = 10) -> float:
    """The rate at which an array far larger than the caches is read and written."""
    x = jnp.zeros(num_bytes // 4, jnp.float32)
    return 2 * num_bytes / median_seconds(functools.partial(jax.jit(lambda x: x + 1), x), repeats)


def describe() -> dict[str, Any]:
    """The device, its load, and versions."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind if device.platform != "cpu" else processor_name(),
        "devices": jax.device_count(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }
