"""The formulas against the products that the programs hold."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from products import product_flops

from pods_jax.config.schema import LoraConfig, ObjectiveConfig, OptimizerConfig
from pods_jax.learner import Batch, make_optimizer, make_update, state_shapes
from pods_jax.learner.logprobs import group_logprobs
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.parallel import make_mesh
from pods_jax.planning import flops
from pods_jax.rollout.decode import begin
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.weights import unstacked

CONFIG = ModelConfig(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
)
MODEL = Decoder(CONFIG)
PARAMS = jax.eval_shape(lambda: init_params(MODEL, jax.random.key(0)))
P, M, S, T = 2, 3, 6, 5


def ints(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def floats(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_scoring():
    program = jax.make_jaxpr(lambda *xs: group_logprobs(MODEL, *xs))(PARAMS, ints(P, S), ints(P), ints(P, M, T))
    expected = flops.scoring_flops(CONFIG, P, M, S, T, LoraConfig())
    assert product_flops(program.jaxpr) == expected


def test_sampling():
    program = jax.make_jaxpr(
        lambda params, key: begin(
            CONFIG, unstacked(params), jnp.zeros((P, S), int), jnp.ones(P, int),
            jnp.zeros(P, jnp.uint32), None, jnp.zeros((P, M), int), key, jnp.float32(1), length=T,
            drawing=Drawing(False, 0, 1.0, (0,), 0),
        )
    )(PARAMS, jax.random.key(0))  # fmt: skip
    expected = flops.prefill_flops(CONFIG, P, S) + flops.decode_flops(CONFIG, P * M, S, T, cached=(T - 1) * T)
    assert product_flops(program.jaxpr, loop_trips=T - 1) == expected


LONG = 1024
CHUNKS = 8
"""Chunks of 128 tokens in so long a completion, or prompt."""


def test_scoring_in_chunks():
    """Loops over earlier chunks run (CHUNKS - 1) / 2 times on average; those over the prompt's are counted as scans."""
    program = jax.make_jaxpr(lambda *xs: group_logprobs(MODEL, *xs))(PARAMS, ints(1, LONG), ints(1), ints(1, 2, LONG))
    expected = flops.scoring_flops(CONFIG, 1, 2, LONG, LONG, LoraConfig())
    assert product_flops(program.jaxpr, loop_trips=(CHUNKS - 1) / 2) == expected
    whole = flops.scoring_flops(CONFIG, 1, 2, LONG, LONG, LoraConfig(), "whole")
    saved = flops.attention_flops(CONFIG, 3 * LONG, LONG) * (CHUNKS - 1) / (2 * CHUNKS)
    assert whole - expected == saved


@pytest.mark.parametrize("remat", [False, True])
def test_gradients_in_chunks(remat):
    model = MODEL.clone(remat="full" if remat else "none")

    def loss(params, *xs):
        return group_logprobs(model, params, *xs).logprobs.sum()

    program = jax.make_jaxpr(jax.grad(loss))(PARAMS, ints(1, LONG), ints(1), ints(1, 2, LONG))
    expected = flops.update_flops(CONFIG, 1, 2, LONG, LONG, LoraConfig(), remat)
    assert product_flops(program.jaxpr, loop_trips=(CHUNKS - 1) / 2) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
def test_update(rank, remat):
    """Within 5 %: the trace lacks a layer's recomputed output, and has a frozen head's gradient, which XLA drops."""
    model, mesh, lora = (
        MODEL.clone(remat="full" if remat else "none"),
        make_mesh(devices=jax.devices()[:1]),
        LoraConfig(rank=rank),
    )
    optimizer = make_optimizer(OptimizerConfig(), 10)
    options = {"temperature": 1.0, "micro_batch_size": None, "chunk_size": None, "max_completion_length": T}
    update = make_update(model, optimizer, ObjectiveConfig(), mesh=mesh, lora=lora, **options)
    batch = Batch(ints(P, S), ints(P), ints(P, M, T), ints(P, M), floats(P, M), floats(P, M, T))
    state = state_shapes(model, optimizer, mesh, lora)
    program = update.trace(state, batch, PARAMS if rank else None).jaxpr
    expected = flops.update_flops(CONFIG, P, M, S, T, lora, remat)
    assert product_flops(program.jaxpr) == pytest.approx(expected, rel=0.05)


def test_attention_to_long_completions_is_computed_again_under_remat():
    """What remat adds, at 400 tokens of a model of width 32, where attention is half of a layer's work."""
    mesh = make_mesh(devices=jax.devices()[:1])
    optimizer = make_optimizer(OptimizerConfig(), 10)
    options = {"temperature": 1.0, "micro_batch_size": None, "chunk_size": None, "max_completion_length": 400}
    batch = Batch(ints(P, S), ints(P), ints(P, M, 400), ints(P, M), floats(P, M), floats(P, M, 400))
    traced = []
    expected = []
    for remat in ("none", "full"):
        model = MODEL.clone(remat=remat, attention="whole")
        update = make_update(model, optimizer, ObjectiveConfig(), mesh=mesh, **options)
        traced.append(product_flops(update.trace(state_shapes(model, optimizer, mesh), batch, None).jaxpr))
        expected.append(flops.update_flops(CONFIG, P, M, S, 400, LoraConfig(), remat == "full", "whole"))
    assert traced[1] - traced[0] == pytest.approx(expected[1] - expected[0], rel=0.07)


def test_xla_counts_the_same_where_nothing_is_in_a_loop():
    """One layer is a loop that runs once; elementwise arithmetic comes on top, so this one is wide."""
    config = dataclasses.replace(CONFIG, num_hidden_layers=1, hidden_size=128, intermediate_size=512, vocab_size=512)
    model = Decoder(config)
    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    lowered = jax.jit(lambda *xs: group_logprobs(model, *xs)).lower(params, ints(P, S), ints(P), ints(P, M, T))
    counted = lowered.compile().cost_analysis()["flops"]
    assert counted == pytest.approx(flops.scoring_flops(config, P, M, S, T, LoraConfig()), rel=0.05)


def test_the_model_flops_of_an_update_are_three_forward_passes():
    """Without recomputation the update differs only in the head, whose logits it computes a second time."""
    model = flops.model_update_flops(CONFIG, P, M, S, T)
    assert model == 3 * flops.scoring_flops(CONFIG, P, M, S, T, LoraConfig())
    executed = flops.update_flops(CONFIG, P, M, S, T, LoraConfig(), remat=False)
    assert executed - model == flops.head_flops(CONFIG, P * M * T)
