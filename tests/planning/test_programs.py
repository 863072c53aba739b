"""The program that is planned for is the one that is run."""

import jax
import jax.numpy as jnp
import pytest

from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.parallel import batch_sharding, make_mesh, replicated
from pods_jax.planning.programs import lower_sampler
from pods_jax.rollout import generate, sampler
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import block_tokens, kv_bytes
from pods_jax.rollout.sampler import planned_passes
from pods_jax.rollout.weights import unstacked

CONFIG = ModelConfig(16, 8, 8, 1, 2, 1, 4)
P, N, S, T = 3, 8, 4, 9
TWO_BLOCKS = 2 * kv_bytes(CONFIG, jnp.float32) * block_tokens(4, S, T)


def arguments(tree):
    return [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize(("chunk_size", "budget", "passes"), [(2, None, 1), (4, TWO_BLOCKS, 3), (64, None, 1)])
def test_the_last_program_of_a_call_is_lowered_from_shapes(monkeypatch, chunk_size, budget, passes):
    """Its arguments, and how many passes there are; no completion ends early, as no token ends one."""
    called = []

    def record(name):
        program = getattr(sampler, name)

        def recording(*args, **static):
            called.append((name, arguments(args[1:])))  # without the model's configuration
            return program(*args, **static)

        monkeypatch.setattr(sampler, name, recording)

    record("begin")
    record("proceed")
    model = Decoder(CONFIG)
    params = init_params(model, jax.random.key(0))
    options = {"chunk_size": chunk_size, "max_cache_bytes_per_device": budget}
    sharding = batch_sharding(make_mesh(devices=jax.devices()[:1]))
    prompts = [[1] * S] * P
    generate(
        model, params, prompts, num_generations=N, max_new_tokens=T, key=jax.random.key(0), sharding=sharding, **options
    )

    layouts = planned_passes([N] * P, kv_bytes(CONFIG, jnp.float32), S, T, 1, chunk_size, budget)
    whole = replicated(sharding.mesh)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), unstacked(params))
    lowered = lower_sampler(
        CONFIG, shapes, layouts[0], sharding, prompt_length=S, max_new_tokens=T, chunk_size=chunk_size,
        drawing=Drawing(False, 0, 1.0, (), 0),
    )  # fmt: skip
    assert [name for name, _ in called].count("begin") == len(layouts) == passes
    last = ("begin" if chunk_size >= T else "proceed", arguments(lowered.args_info))
    assert last in called
    assert called[-1][0] == last[0]
