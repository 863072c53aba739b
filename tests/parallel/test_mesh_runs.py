"""Training on eight simulated devices is training on one; run as a script, the child that has the eight."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from pods_jax.config.schema import default_config, from_mapping
from pods_jax.errors import UserError
from pods_jax.learner import TrainState
from pods_jax.models.decoder import ModelConfig, is_weight, model_weights
from pods_jax.models.shardings import param_shardings
from pods_jax.parallel import place, replicated
from pods_jax.parallel.mesh import AXES
from pods_jax.rewards import RewardPool
from pods_jax.rollout import sampler
from pods_jax.training.checkpoint import Checkpoints
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run
from pods_jax.training.step import train_step

MESHES = {
    "(8, 1, 1)": {"data": 8},
    "(1, 8, 1)": {"data": 1, "fsdp": 8},
    "(2, 2, 2)": {"data": 2, "fsdp": 2, "tensor": 2},
    "(1, 2, 4)": {"data": 1, "fsdp": 2, "tensor": 4},
    "sampled on (2, 1, 4)": {"data": 1, "fsdp": 8, "sampling": {"tensor": 4}},
}


def config(mesh):
    c = default_config()
    c.data.options = {"base": 3, "digits": 2, "num_train": 24, "num_test": 8}
    c.model.hidden_size, c.model.intermediate_size, c.model.num_hidden_layers = 32, 32, 1
    c.model.num_attention_heads, c.model.num_key_value_heads = 4, 4
    c.rollout.num_prompts, c.rollout.num_generations, c.selection.num_kept = 8, 8, 4
    c.rollout.max_prompt_length, c.rollout.max_completion_length = 5, 4
    c.reward.parts = {"truncated": 1.0}  # which an untrained policy earns now and then
    c.optimizer.learning_rate, c.optimizer.adam_epsilon = 1e-3, 1e-2
    c.mesh.update(mesh)
    built, problems = from_mapping(c)
    assert not problems
    return built


def three_steps(mesh, pool):
    """The sampled tokens of each step, the run after the third, and its last metrics."""
    c = config(mesh)
    run = make_run(c, load_data(c), pool, print)
    tokens, metrics = [], {}
    for step in (1, 2, 3):
        metrics, kept = train_step(run, step)
        tokens.append(np.stack([k.group.tokens for k in kept]))
    return np.stack(tokens), run, metrics | run.clock.take()


def flat(tree):
    return {jax.tree_util.keystr(p): np.asarray(x) for p, x in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What the child saw on each mesh, beside this process's one device."""
    folder = tmp_path_factory.mktemp("one_device")
    with RewardPool(num_workers=1) as pool:
        tokens, run, _ = three_steps({}, pool)
    assert len({t.tobytes() for t in tokens}) == 3
    np.savez(folder / "one.npz", tokens=tokens, **flat(run.state.params))
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, str(folder / "one.npz")]
    child = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.parametrize("mesh", MESHES)
def test_rollouts_and_parameters_do_not_depend_on_the_mesh(report, mesh):
    assert report[mesh]["tokens_equal"]
    assert report[mesh]["difference"] < 1e-5
    assert report[mesh]["grad_norm"] > 1e-3


@pytest.mark.parametrize("mesh", MESHES)
def test_nothing_is_held_whole_that_can_be_split(report, mesh):
    """Bytes of the parameters and both moments on a device, beside their sum over the parts that the mesh makes."""
    assert report[mesh]["state_bytes"] == report[mesh]["expected_state_bytes"]
    assert report[mesh]["cache_is_split"]


def test_a_sampling_layout_is_timed(report):
    assert report["sampled on (2, 1, 4)"]["reshard_s"] > 0
    assert report["(8, 1, 1)"]["reshard_s"] is None


def test_a_checkpoint_moves_between_meshes(report):
    assert report["moves"] == [[8, True], [4, True], [1, True], [8, True]]


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ({"tensor": 3}, "mesh axis tensor = 3 does not divide num_attention_heads = 4"),
        ({"tensor": 4}, "mesh axis tensor = 4 does not divide num_key_value_heads = 2"),
        ({"fsdp": 3}, "mesh axis fsdp = 3 does not divide hidden_size = 8"),
    ],
)
def test_an_axis_that_does_not_divide_the_model_is_a_user_error(mesh, message):
    shape = {"data": 1, "fsdp": 1, "tensor": 1} | mesh
    abstract = jax.sharding.AbstractMesh(tuple(shape.values()), AXES)
    with pytest.raises(UserError, match=message):
        param_shardings(ModelConfig(7, 8, 8, 1, 4, 2, 4), abstract)


# ---------------------------------------------------------------- the child


def on_mesh(mesh, expected, pool):
    with recorded_sampler() as programs:
        tokens, run, metrics = three_steps(mesh, pool)
    params = flat(run.state.params)
    moments = [x for x in jax.tree.leaves(run.state.opt_state) if x.ndim]
    held = [*jax.tree.leaves(run.state.params), *moments]
    parts = 3 * [n for n in expected_part_sizes(run)]
    return {
        "tokens_equal": bool((tokens == expected["tokens"]).all()),
        "difference": max(float(np.abs(x - expected[name]).max()) for name, x in params.items()),
        "grad_norm": metrics["grad_norm"],
        "state_bytes": sum(x.addressable_shards[0].data.nbytes for x in held),
        "expected_state_bytes": 4 * sum(parts),
        "cache_is_split": cache_is_split(run, programs[0].as_text()),
        "reshard_s": metrics.get("reshard"),
    }


def expected_part_sizes(run):
    """Elements of a device's part of each weight: all axes but those of size 1 and the vocabulary are split."""
    shape, c = dict(run.mesh.shape), run.model.config
    D, F, V, L = c.hidden_size, c.intermediate_size, c.vocab_size, c.num_hidden_layers
    f, t = shape["fsdp"], shape["tensor"]
    v = t if V % t == 0 else 1
    yield from [V * D // f // v] * 2  # embedding and head
    yield D  # the last norm
    yield from [L * D] * 2  # the layers' norms
    yield from [L * D * D // f // t] * 4
    yield from [L * D * F // f // t] * 3


@contextlib.contextmanager
def recorded_sampler():
    """The compiled sampler of all calls that are made inside, which have one shape."""
    original, programs = sampler.begin, []

    def recording(config, *arrays, **static):
        if not programs:
            programs.append(original.lower(config, *arrays, **static).compile())
        return programs[0](*arrays)

    sampler.begin = recording
    yield programs
    sampler.begin = original


def cache_is_split(run, text):
    """Whether the sampler's loop carries this device's part of the values [R, K, T, h], and never all of them."""
    shape, c = run.sampling_mesh.shape, run.model.config
    R, K = 64 // (shape["data"] * shape["fsdp"]), c.num_key_value_heads // shape["tensor"]
    return f"f32[{R},{K},4,{c.head_dim}]" in text and f"f32[64,{c.num_key_value_heads},4,{c.head_dim}]" not in text


def moves():
    """From eight devices to four to one and back, on meshes that split along different axes."""
    rng = np.random.default_rng(0)
    config = ModelConfig(8, 8, 8, 2, 4, 4, 4)
    params = jax.tree.map(
        lambda w: rng.normal(size=w.shape).astype(np.float32), model_weights(config), is_leaf=is_weight
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for step, shape in enumerate([(2, 2, 2), (1, 4, 1), (1, 1, 1), (1, 2, 4)]):
            devices = jax.devices()[: int(np.prod(shape))]
            mesh = jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3, devices=devices)
            like = TrainState(*place((params, {}, np.int32(0)), (param_shardings(config, mesh), {}, replicated(mesh))))
            checkpoints = Checkpoints(Path(folder), 2)
            restored = checkpoints.restore(like, print)
            state = restored.state if restored else like
            same = jax.tree.map(lambda x, y: bool((np.asarray(x) == y).all()), state.params, params)
            placed = jax.tree.map(lambda x, y: x.sharding == y.sharding, state.params, like.params)
            found.append([len(devices), jax.tree.all(same) and jax.tree.all(placed)])
            checkpoints.save(step, state, {})
            checkpoints.close()
    return found


def main():
    expected = np.load(sys.argv[1])
    with RewardPool(num_workers=1) as pool:
        report = {name: on_mesh(mesh, expected, pool) for name, mesh in MESHES.items()}
    print(json.dumps(report | {"moves": moves()}))


if __name__ == "__main__":
    main()
