"""Meshes and partition rules; run as a script, the child of the multi-device test (eight simulated CPU devices)."""

import contextlib
import dataclasses
import json
import math
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as Spec

from pods_jax.buckets import pad_prompts
from pods_jax.config.schema import ObjectiveConfig, OptimizerConfig
from pods_jax.errors import UserError
from pods_jax.learner import Batch, init_state, make_optimizer, make_update, state_shapes
from pods_jax.models import attention
from pods_jax.models.decoder import Decoder, ModelConfig, Weight, model_weights
from pods_jax.models.shardings import param_shardings
from pods_jax.parallel import batch_sharding, make_mesh
from pods_jax.parallel.mesh import AXES, mesh_shape
from pods_jax.planning.collectives import traffic
from pods_jax.rollout import generate

CONFIG = ModelConfig(
    vocab_size=16,
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    attention_bias=True,
    qk_norm=True,
)
MODEL = Decoder(CONFIG)
OPTIMIZER = make_optimizer(OptimizerConfig(learning_rate=0.1, adam_epsilon=0.1), num_steps=4)
MESHES = [(2, 2, 2), (1, 8, 1)]


# ---------------------------------------------------------------- shapes and rules


@pytest.mark.parametrize(
    ("sizes", "num_devices", "expected"),
    [
        ((-1, 1, 1), 8, (8, 1, 1)),
        ((2, -1, 2), 8, (2, 2, 2)),
        ((1, 4, -1), 4, (1, 4, 1)),
        ((2, 2, 2), 8, (2, 2, 2)),
    ],
)
def test_minus_one_fills_the_mesh(sizes, num_devices, expected):
    assert mesh_shape(sizes, num_devices) == expected


@pytest.mark.parametrize("sizes", [(3, 1, 1), (-1, 3, 1), (16, 1, 1), (-1, -1, 1), (1, 1, 1)])
def test_a_mesh_that_does_not_fit_is_a_user_error(sizes):
    with pytest.raises(UserError, match=r"mesh \{'data': .*\} does not fit 8 device\(s\)"):
        mesh_shape(sizes, 8)


def test_a_mesh_of_size_zero_is_a_user_error():
    with pytest.raises(UserError, match="does not fit"):
        mesh_shape((0, -1, 1), 8)


def test_a_mesh_axis_lets_the_compiler_propagate_shardings():
    mesh = make_mesh()
    assert mesh.axis_names == ("data", "fsdp", "tensor")
    assert set(mesh.axis_types) == {AxisType.Auto}


def test_every_parameter_has_a_sharding():
    shardings = param_shardings(CONFIG, make_mesh())
    expected = {
        "embed": Spec("tensor", "fsdp"),
        "final_norm": Spec(None),
        "layers": {
            "attn_norm": Spec(None, None),
            "q": Spec(None, "fsdp", "tensor"),
            "k": Spec(None, "fsdp", "tensor"),
            "v": Spec(None, "fsdp", "tensor"),
            "q_bias": Spec(None, "tensor"),
            "k_bias": Spec(None, "tensor"),
            "v_bias": Spec(None, "tensor"),
            "q_norm": Spec(None, None),
            "k_norm": Spec(None, None),
            "o": Spec(None, "tensor", "fsdp"),
            "mlp_norm": Spec(None, None),
            "gate": Spec(None, "fsdp", "tensor"),
            "up": Spec(None, "fsdp", "tensor"),
            "down": Spec(None, "tensor", "fsdp"),
        },
        "lm_head": Spec("fsdp", "tensor"),
    }
    assert jax.tree.map(lambda s: s.spec, shardings) == expected


def test_a_vocabulary_that_is_not_divided_stays_whole():
    mesh = jax.sharding.AbstractMesh((1, 2, 2), AXES)
    shardings = param_shardings(dataclasses.replace(CONFIG, vocab_size=7), mesh)
    assert shardings["embed"].spec == Spec(None, "fsdp")
    assert shardings["lm_head"].spec == Spec("fsdp", None)


# ---------------------------------------------------------------- eight devices equal one


@pytest.fixture(scope="module")
def report():
    """What the child measured on each mesh against one device."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
    child = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.fixture(params=MESHES, ids=str)
def on_mesh(report, request):
    return report[str(request.param)]


def test_completions_do_not_depend_on_the_mesh(on_mesh):
    assert on_mesh["tokens_equal"]
    assert on_mesh["difference"]["sampled logprobs"] < 1e-5


def test_an_update_does_not_depend_on_the_mesh(on_mesh):
    """Whole-batch on one device against micro-batches on eight: parameters, moments, metrics, log-probabilities."""
    differences = on_mesh["difference"]
    assert {"logprobs", "params", "opt_state", "loss", "grad_norm"} <= set(differences)
    assert all(x < 1e-5 for x in differences.values()), differences


def test_each_device_holds_its_part_of_a_weight(report):
    """On (2, 2, 2), a matrix is cut along both axes."""
    parts = report["(2, 2, 2)"]["parts"]
    assert parts["layers"]["q"] == [2, 4, 8]
    assert parts["layers"]["o"] == [2, 8, 4]
    assert parts["embed"] == [8, 4]
    assert parts["final_norm"] == [8]


def test_optimizer_moments_are_sharded_like_their_parameters(on_mesh):
    assert on_mesh["moments_like_params"]


def test_data_parallel_micro_batches_exchange_nothing_but_gradients(report):
    """Any other means that devices wait for, or repeat, each other's rollouts. (A vocabulary of 7 is not split.)"""
    assert report["data parallel"] == ["all-reduce"]


def test_attention_in_chunks_exchanges_nothing(report):
    assert report["data parallel in chunks"] == ["all-reduce"]


@pytest.mark.parametrize("implementation", ["chunked", "splash"])
def test_attention_does_not_depend_on_the_mesh(report, implementation):
    """Groups split in four, heads in two."""
    assert report[f"attention {implementation}"] < 1e-5


def test_the_head_is_not_sent_again_for_every_chunk_of_tokens(report):
    """Bytes that a device sends for all tokens at once, and for a fifth of them at a time."""
    assert report["sent in chunks"] < 1.1 * report["sent at once"]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_an_update_keeps_the_states_shardings(report, mesh):
    """Else the next step compiles again, and donated buffers do not fit."""
    assert report[str(mesh)]["moved"] == []


def test_weights_are_gathered_one_layer_at_a_time(on_mesh):
    """The largest gather is of one layer's weight, half of a stack of two; embedding and head are smaller here.

    Or it is of the embedded tokens of a device, of which the embedding's parts give it parts: 2 groups of 2 by 5.
    """
    stacks = jax.tree.leaves(model_weights(CONFIG)["layers"], is_leaf=lambda x: isinstance(x, Weight))
    embedded = 2 * 2 * 5 * CONFIG.hidden_size
    assert on_mesh["largest_gather"] <= max(embedded, *(math.prod(w.shape[1:]) for w in stacks))


def test_a_device_is_given_only_its_parts(on_mesh):
    """As the compiler counts the bytes of the update's arguments: the state's parts, and the batch's."""
    assert on_mesh["argument_bytes"] == on_mesh["part_bytes"]


def test_devices_exchange_weights_and_never_activations(report):
    """The same devices split parameters and groups; the activations of a micro-batch would be larger."""
    weights = jax.tree.leaves(model_weights(CONFIG), is_leaf=lambda x: isinstance(x, Weight))
    assert report["(1, 8, 1)"]["largest_exchange"] <= max(math.prod(w.shape) for w in weights)


# ---------------------------------------------------------------- the child


def mesh_of(shape):
    devices = jax.devices()[: int(np.prod(shape))]
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3, devices=devices)


def update_on(mesh, model, micro_batch_size, chunk_size=None):
    sizes = {"micro_batch_size": micro_batch_size, "chunk_size": chunk_size, "max_completion_length": 5}
    return make_update(model, OPTIMIZER, ObjectiveConfig(), temperature=1.0, mesh=mesh, **sizes)


def program_text(shape, vocab_size, micro_batch_size=None, chunk_size=None):
    """An update of 16 blocks of 2 rollouts, compiled from shapes."""
    mesh, model = mesh_of(shape), Decoder(dataclasses.replace(CONFIG, vocab_size=vocab_size))
    shapes = {"prompts": (16, 3), "prompt_lengths": (16,), "completions": (16, 2, 5), "lengths": (16, 2)}
    shapes |= {"advantages": (16, 2), "behaviour_logprobs": (16, 2, 5)}
    of_floats = ("advantages", "behaviour_logprobs")
    batch = {
        name: jax.ShapeDtypeStruct(s, jnp.float32 if name in of_floats else jnp.int32, sharding=batch_sharding(mesh))
        for name, s in shapes.items()
    }
    update = update_on(mesh, model, micro_batch_size, chunk_size)
    return update.lower(state_shapes(model, OPTIMIZER, mesh), Batch(**batch)).compile().as_text()


def on_devices(shape, micro_batch_size):
    """Samples, then updates: completions, new state, metrics, log-probabilities, and facts about placement."""
    mesh = mesh_of(shape)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda w: jnp.asarray(rng.normal(0, 0.7, w.shape), jnp.float32),
        model_weights(CONFIG),
        is_leaf=lambda x: isinstance(x, Weight),
    )
    state = init_state(MODEL, params, OPTIMIZER, mesh)

    prompts = [[1 + p % 6] * (1 + p % 3) for p in range(8)]
    sizes = {"num_generations": 4, "max_new_tokens": 5, "eos_ids": (0,), "sharding": batch_sharding(mesh)}
    completions = generate(MODEL, state.params, prompts, key=jax.random.key(0), **sizes)

    halves = jax.tree.map(lambda x: x.reshape(16, 2, *x.shape[2:]), completions)  # of groups: a device's micro-batch
    batch = Batch(
        *(jnp.repeat(x, 2, 0) for x in pad_prompts(prompts)),
        completions=halves.tokens,
        lengths=halves.lengths,
        advantages=jnp.float32(rng.normal(size=(16, 2))),
        behaviour_logprobs=halves.logprobs,
    )
    update = update_on(mesh, MODEL, micro_batch_size, chunk_size=16)  # two tokens of each of 8 groups
    batch = jax.device_put(batch, batch_sharding(mesh))
    program = update.lower(state, batch).compile()
    used = state, batch._replace(behaviour_logprobs=None)  # which no correction asks for
    part_bytes = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(used))
    before = jax.tree.map(lambda x: x.sharding, state)
    parts = jax.tree.map(lambda x: x.addressable_shards[0].data.shape, state.params)
    after, metrics, logprobs = program(state, batch)
    placement = {
        "parts": parts,
        "moments_like_params": moments_like_params(before),
        "moved": moved(before, after),
        "largest_gather": max((n for name, n in collectives(program.as_text()) if name == "all-gather"), default=0),
        "argument_bytes": program.memory_analysis().argument_size_in_bytes,
        "part_bytes": part_bytes,
        "largest_exchange": max((size for _, size in collectives(program.as_text())), default=0),
    }
    return jax.device_get((completions, after, metrics, logprobs)), placement


def moments_like_params(shardings):
    adam = next(s for s in jax.tree.leaves(shardings.opt_state, is_leaf=is_adam) if is_adam(s))
    return adam.mu == adam.nu == shardings.params


def is_adam(state):
    return hasattr(state, "mu")


def moved(shardings, state):
    """The leaves that no longer have their sharding."""
    stays = jax.tree.map(lambda s, x: x.sharding.is_equivalent_to(s, x.ndim), shardings, state)
    return [jax.tree_util.keystr(path) for path, same in jax.tree.leaves_with_path(stays) if not same]


def collectives(program_text):
    """(name, elements of its largest array) of every collective that is not of token ids."""
    names = r"= (.*) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\("
    for shapes, name in re.findall(names, program_text):
        sizes = [math.prod(map(int, filter(None, s.split(",")))) for s in re.findall(r"f\d+\[([\d,]*)\]", shapes)]
        yield name, max(sizes, default=0)


@contextlib.contextmanager
def chunks_of(size):
    """Attention in chunks of so many tokens, however short."""
    usual, attention.CHUNKS = attention.CHUNKS, (size, size)
    yield
    attention.CHUNKS = usual


def attention_on_a_mesh(implementation):
    """The largest difference to whole scores on one device."""
    rng = np.random.default_rng(0)
    shapes = (4, 2, 5, 4, 8), *[(4, 2, 5, 2, 8)] * 2, *[(4, 1, 3, 2, 8)] * 2
    q, k, v, kp, vp = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    prefix = attention.Prefix(attention.KV(kp, vp), jnp.arange(3) < jnp.array([[1], [2], [3], [3]]))
    arrays = q, attention.KV(k, v), prefix
    mesh = mesh_of((2, 2, 2))
    split = jax.tree.map(lambda x: jax.device_put(x, batch_sharding(mesh)), arrays)
    attend = jax.jit(attention.attend, static_argnums=(3, 4))
    with chunks_of(2):
        found = attend(*split, implementation, batch_sharding(mesh))
    return largest_difference(found, attend(*arrays, "whole"))


def largest_difference(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.abs(x - y).max()), a, b)))


def main():
    (completions, state, metrics, logprobs), _ = on_devices((1, 1, 1), None)
    with chunks_of(2):
        chunked = program_text((8, 1, 1), 7, micro_batch_size=16)
    at_once, in_chunks = (traffic(program_text((2, 2, 2), 256, chunk_size=size)) for size in (None, 32))
    report = {
        "data parallel": sorted({name for name, _ in collectives(program_text((8, 1, 1), 7, micro_batch_size=16))}),
        "data parallel in chunks": sorted({name for name, _ in collectives(chunked)}),
        "attention chunked": attention_on_a_mesh("chunked"),
        "attention splash": attention_on_a_mesh("splash"),
        "sent at once": sum(t.sent_bytes for t in at_once.values()),
        "sent in chunks": sum(t.sent_bytes for t in in_chunks.values()),
    }
    for shape in MESHES:
        (completions_8, state_8, metrics_8, logprobs_8), placement = on_devices(shape, 16)
        pairs = {
            "sampled logprobs": (completions.logprobs, completions_8.logprobs),
            "logprobs": (logprobs, logprobs_8),
            "params": (state.params, state_8.params),
            "opt_state": (state.opt_state, state_8.opt_state),
        } | {name: (metrics[name], metrics_8[name]) for name in metrics}
        report[str(shape)] = placement | {
            "tokens_equal": bool((completions.tokens == completions_8.tokens).all()),
            "difference": {name: largest_difference(*pair) for name, pair in pairs.items()},
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
