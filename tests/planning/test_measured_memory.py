"""Planned memory against the memory that a process of its own takes; run as a script, that process."""

import ctypes
import functools
import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = {
    "model.hidden_size": 256, "model.intermediate_size": 1024, "model.num_hidden_layers": 4,
    "model.num_attention_heads": 8, "model.num_key_value_heads": 4, "model.remat": "full",
    "data.options.num_train": 50, "data.options.num_test": 8, "data.options.digits": 3,
    "rollout.max_prompt_length": 64, "rollout.num_prompts": 8, "rollout.num_generations": 32,
    "selection.num_kept": 16,
}  # fmt: skip
CLEAR = Path("/proc/self/clear_refs")


@pytest.mark.slow
@pytest.mark.skipif(not CLEAR.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs Linux and glibc")
@pytest.mark.parametrize("T", [65, 513])
@pytest.mark.parametrize("phase", ["sampling", "update"])
def test_a_plan_says_what_a_step_takes(T, phase):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    command = [sys.executable, __file__, phase, str(T)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout.splitlines()[-1])
    assert found["measured"] == pytest.approx(found["planned"], rel=0.1)


def main(phase: str, T: int) -> None:
    import jax

    from pods_jax.config.schema import default_config, from_mapping
    from pods_jax.planning.step_plan import plan_step

    c = default_config()
    c.update_from_flattened_dict(MODEL | {"rollout.max_completion_length": T})
    config, problems = from_mapping(c)
    assert not problems
    names = ("prefill", "sampling") if phase == "sampling" else ("update",)
    plan = plan_step(config, "local", jax.devices(), lambda line: None, names)
    work, held = (_sampling if phase == "sampling" else _update)(plan.run)
    work()  # compiles
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")  # the peak starts anew
    before = _memory("VmRSS")
    work()
    measured = _memory("VmHWM") - before + held
    parts = [[p.program.name, *p.memory[:5]] for p in plan.phases]
    print(json.dumps({"planned": plan.peak_bytes, "measured": measured, "held": held, "parts": parts}))


def _memory(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def _sampling(run):
    """All rollouts of a step, none of which ends early; and the bytes of what the plan counts and the process has."""
    import jax

    from pods_jax.models.decoder import init_params
    from pods_jax.planning.run_shapes import device_bytes
    from pods_jax.rollout import generate
    from pods_jax.rollout.weights import unstacked

    r = run.config.rollout
    params = jax.jit(functools.partial(init_params, run.model))(jax.random.key(0))
    params = {**unstacked(params)}
    jax.block_until_ready(params)
    prompts = [[1] * r.max_prompt_length] * r.num_prompts

    def work():
        generate(
            run.model, params, prompts, num_generations=r.num_generations, max_new_tokens=r.max_completion_length,
            key=jax.random.key(0), chunk_size=r.chunk_size,
        )  # fmt: skip

    resident = device_bytes(run.sampled)
    beside = sum(run.held().values()) - device_bytes({k: v for k, v in run.sampled.items() if k != "layers"})
    return work, resident + beside


def _update(run):
    import jax
    import jax.numpy as jnp

    from pods_jax.planning.programs import batch_shapes
    from pods_jax.training.run import update_function

    update = update_function(run.config, run.model, run.mesh, widths=lambda T: (T,))
    shapes = batch_shapes(run)
    batch = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), shapes)
    batch = batch._replace(lengths=jnp.full(shapes.lengths.shape, run.config.rollout.max_completion_length, jnp.int32))
    states = [jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), run.state)]

    def work():
        states[0] = jax.block_until_ready(update(states[0], batch, None))[0]

    return work, sum(x.nbytes for x in jax.tree.leaves((states, batch)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
