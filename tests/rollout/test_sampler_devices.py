"""The sampler on a mesh; run as a script, the child of the test (eight simulated CPU devices)."""

import json
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.shardings import param_shardings
from pods_jax.parallel import batch_sharding
from pods_jax.parallel.mesh import AXES
from pods_jax.rollout import generate
from pods_jax.rollout.decode import begin, resume
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import block_tokens, kv_bytes
from pods_jax.rollout.weights import unstacked

CONFIG = ModelConfig(
    vocab_size=11,
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
)
MODEL = Decoder(CONFIG)
MESHES = [(1, 1, 1), (8, 1, 1), (2, 2, 2)]
PROMPTS = [[1 + p % 6] * (1 + p % 3) for p in range(5)]
COUNTS = [2, 6, 1, 2, 31]


@pytest.fixture(scope="module")
def report():
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
    child = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.mark.parametrize("mesh", MESHES[1:], ids=str)
def test_unequal_groups_do_not_depend_on_the_mesh(report, mesh):
    one, many = report[str(MESHES[0])], report[str(mesh)]
    assert one["lengths"] == many["lengths"]
    assert one["tokens"] == many["tokens"]
    assert [sum(length > 0 for length in group) for group in many["lengths"]] == COUNTS


def test_chunks_change_nothing_on_a_mesh(report):
    """Each device drops its own finished rollouts."""
    assert report["in chunks"] == report["(8, 1, 1)"]


@pytest.mark.parametrize("mesh", MESHES[1:], ids=str)
def test_passes_to_milestones_change_nothing_on_a_mesh(report, mesh):
    """Each device computes again what its own rollouts had."""
    assert report[f"{mesh} in passes"] == report["whole"]


def test_the_kernel_changes_nothing_on_a_mesh(report):
    """Each device runs it on its own blocks and heads."""
    assert report["by the kernel"] == report["(2, 2, 2)"]


def test_reshaped_draws_do_not_depend_on_the_mesh(report):
    one, many = (report[f"{shape} reshaped"] for shape in MESHES[::2])
    assert one == many
    assert one["tokens"] != report[str(MESHES[0])]["tokens"]


@pytest.mark.parametrize("draws", ["full", "reshaped"])
def test_devices_exchange_nothing_but_whether_they_are_done(report, draws):
    """Each decodes blocks whose prompts it has prefilled itself; an all-gather would be of keys and values."""
    assert report[f"collectives {draws}"] == ["all-reduce"]
    assert report["collectives resumed"] == []


# ---------------------------------------------------------------- the child


def on_devices(shape, **options):
    mesh = jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3, devices=jax.devices()[: int(np.prod(shape))])
    params = jax.device_put(init_params(MODEL, jax.random.key(0)), param_shardings(CONFIG, mesh))
    sizes = {"num_generations": COUNTS, "max_new_tokens": 7, "eos_ids": (0, 1, 2, 3), "sharding": batch_sharding(mesh)}
    completions = generate(MODEL, params, PROMPTS, key=jax.random.key(0), **(sizes | options))
    return {"tokens": completions.tokens.tolist(), "lengths": completions.lengths.tolist()}


RESHAPED = {"top_k": 9, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.5}


PASSES = {"max_new_tokens": 18, "eos_ids": (0,), "chunk_size": 3}


def in_passes(shape):
    """To milestones of 6 and 18 tokens, with room for a block on each device."""
    budget = kv_bytes(CONFIG, "float32") * block_tokens(4, 4, 18) // shape[2]
    return on_devices(shape, **PASSES, max_cache_bytes_per_device=budget)


def collectives(resumed=False, **options):
    """What a program over eight devices with three blocks and two prompts each exchanges."""
    mesh = jax.make_mesh((8, 1, 1), AXES, axis_types=(AxisType.Auto,) * 3)
    params = jax.device_put(init_params(MODEL, jax.random.key(0)), param_shardings(CONFIG, mesh))
    arrays = jax.device_put(
        (
            np.ones((16, 4), np.int32),
            np.full(16, 4, np.int32),
            np.zeros(16, np.uint32),
            np.tile(np.int32([0, 1, 1]), (8, 1)),
            np.zeros((24, 2), np.int32),
        ),
        batch_sharding(mesh),
    )
    drawing = Drawing(greedy=False, eos_ids=(0,), parts=8, **options)
    weights = unstacked(params)
    if resumed:
        tokens = jax.device_put(np.zeros((24, 2, 4), np.int32), batch_sharding(mesh))
        lowered = resume.lower(CONFIG, weights, *arrays, tokens, drawing=drawing, capacity=8, width=2)
    else:
        scalars = jax.random.key(0), jnp.float32(1.0)
        lowered = begin.lower(CONFIG, weights, *arrays, *scalars, length=5, drawing=drawing)
    program = lowered.compile().as_text()
    return sorted(set(re.findall(r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(", program)))


def main():
    report = {"collectives full": collectives(), "collectives reshaped": collectives(**RESHAPED)}
    report["collectives resumed"] = collectives(resumed=True, **RESHAPED)
    report["whole"] = on_devices((1, 1, 1), **(PASSES | {"chunk_size": 18}))
    report |= {f"{shape} in passes": in_passes(shape) for shape in MESHES[1:]}
    report["in chunks"] = on_devices((8, 1, 1), chunk_size=2)
    report["by the kernel"] = on_devices((2, 2, 2), attention="kernel")
    report |= {f"{shape} reshaped": on_devices(shape, chunk_size=3, **RESHAPED) for shape in MESHES[::2]}
    print(json.dumps(report | {str(shape): on_devices(shape) for shape in MESHES}))


if __name__ == "__main__":
    main()
