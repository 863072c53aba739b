"""Planned and measured bytes of a run on this machine: `python measured.py T` prints a line of JSON by program.

Measured is what jax holds, and what the process grows by beyond it: Linux keeps the peak of its resident memory. Small
blocks are given back to the system as large ones are, since an allocator that keeps them would hide what is freed.
"""

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from pods_jax.config.schema import Config, default_config, from_mapping
from pods_jax.planning.programs import batch_shapes
from pods_jax.planning.run_shapes import run_shapes
from pods_jax.planning.step_plan import plan_step
from pods_jax.rollout.engine import Orders, SamplingParams
from pods_jax.training.prompts import load_data
from pods_jax.training.run import Run, make_run

PROMPT = 64
M_MMAP_THRESHOLD = -3
LIBC = ctypes.CDLL(None)


def config_of(T: int) -> Config:
    """Two layers, and some 60 MB of cache and of activations."""
    c = default_config()
    c.update_from_flattened_dict({
        "data.options": {"base": 3, "digits": 2, "num_train": 24, "num_test": 8, "unseen_fraction": 0.25},
        "model.hidden_size": 256, "model.intermediate_size": 512, "model.num_hidden_layers": 2,
        "model.num_attention_heads": 4, "model.num_key_value_heads": 4, "warm_start.num_steps": 0,
        "rollout.num_prompts": 4, "rollout.num_generations": max(4, 4096 // T), "selection.num_kept": max(2, 1024 // T),
        "rollout.max_prompt_length": PROMPT, "rollout.max_completion_length": T,
    })  # fmt: skip
    return from_mapping(c)[0]


def sample(run: Run) -> None:
    """Generates as a step does; no token ends a rollout."""
    r = run.config.rollout
    P = r.num_prompts
    orders = Orders([[1] * PROMPT] * P, [r.num_generations] * P, range(P), [0] * P, jax.random.key(0))
    run.engine._served = run.engine._served.__class__(**(vars(run.engine._served) | {"eos_ids": ()}))
    run.engine.update_params(0)
    run.engine.generate(orders, SamplingParams(r.max_completion_length))
    run.engine.release()


def update(run: Run) -> None:
    """An update on rollouts of the greatest length."""
    shapes = batch_shapes(run_shapes(run.config, jax.devices()))
    batch = jax.tree.map(lambda s: jax.device_put(jnp.ones(s.shape, s.dtype), s.sharding), shapes)
    T = run.config.rollout.max_completion_length
    batch = batch._replace(lengths=batch.lengths * T, prompt_lengths=batch.prompt_lengths * PROMPT)
    run.state, *_ = jax.block_until_ready(run.update(run.state, batch, run.base))


def peak_bytes(work: Callable[[], None]) -> int:
    """Bytes that jax holds and, while it works, as many as the process grows by."""
    work()  # compiles
    gc.collect()
    LIBC.malloc_trim(0)
    held = sum(x.nbytes for x in jax.live_arrays())
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present size from here on
    before = status("VmRSS")
    work()
    return held + status("VmHWM") - before


def status(name: str) -> int:
    """A number of bytes from Linux's account of this process."""
    [line] = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def main() -> None:
    LIBC.mallopt(M_MMAP_THRESHOLD, 1 << 16)
    config = config_of(int(sys.argv[1]))
    phases = plan_step(config, "local", jax.devices(), lambda text: None).phases
    planned = {phase.program.name: phase.memory.peak for phase in phases}
    generation = max(planned.pop("prefill"), planned.pop("sampling"))
    run = make_run(config, load_data(config), None, lambda *_: None)
    measured = {"sampling": peak_bytes(lambda: sample(run)), "update": peak_bytes(lambda: update(run))}
    print(json.dumps({"planned": planned | {"sampling": generation}, "measured": measured}))


if __name__ == "__main__":
    main()
