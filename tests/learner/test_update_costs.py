"""An update's arithmetic and arrays, counted in its program; clocks are for `experiments/benchmark.py`."""

import dataclasses
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pods_jax.config.schema import LoraConfig, ObjectiveConfig, OptimizerConfig
from pods_jax.learner import Batch, init_state, make_optimizer, make_update
from pods_jax.learner.state import FULL, TrainState
from pods_jax.learner.update import trimmed_widths
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.lora import init_adapters
from pods_jax.parallel import make_mesh

CONFIG = ModelConfig(
    vocab_size=23,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    tie_word_embeddings=True,
)
P, M, S, T = 4, 2, 3, 64
LENGTHS = np.array([[3, 0], [60, 17], [12, 5], [30, 33]])
GRADIENTS = optax.trace(decay=0.0)  # an optimizer whose state is the last gradient


def batch(vocab_size=CONFIG.vocab_size):
    rng = np.random.default_rng(0)
    arrays = {
        "prompts": rng.integers(0, vocab_size, (P, S)),
        "prompt_lengths": np.array([3, 2, 1, 3]),
        "completions": rng.integers(0, vocab_size, (P, M, T)),
        "lengths": LENGTHS,
        "advantages": np.float32(rng.normal(size=(P, M))),
        "behaviour_logprobs": np.float32(rng.normal(-3, 0.1, (P, M, T))),
        "old_logprobs": np.float32(rng.normal(-3, 0.3, (P, M, T))),
    }
    return Batch(**jax.tree.map(jnp.asarray, arrays))


def compiled(model, micro_batch_size=None, chunk_size=None, lora=FULL):
    sizes = {"micro_batch_size": micro_batch_size, "chunk_size": chunk_size, "max_completion_length": T}
    mesh, objective = make_mesh(1, 1, 1), ObjectiveConfig(loss_type="dapo")
    return make_update(model, GRADIENTS, objective, temperature=1.0, mesh=mesh, lora=lora, **sizes)


def start(model):
    return init_state(model, init_params(model, jax.random.key(0)), GRADIENTS, make_mesh(1, 1, 1))


def products(jaxpr):
    """The inputs of all products of a program, of those inside its loops, branches and checkpoints too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield [v.aval for v in equation.invars]
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from products(inner)


def update_products(model, **options):
    program = compiled(model, **options).trace(jax.eval_shape(lambda: start(model)), batch()).jaxpr
    return list(products(program.jaxpr))


def test_the_head_is_multiplied_four_times_and_only_with_completion_positions():
    """Forward, again in the backward pass, and the gradients of hidden states and weights; never for the prompt."""
    V, D = CONFIG.vocab_size, CONFIG.hidden_size
    sizes = [sum((x.shape for x in pair), ()) for pair in update_products(Decoder(CONFIG), chunk_size=128)]
    projections = [s for s in sizes if V in s]
    assert len(projections) == 4
    tokens = {size for s in projections for size in s} - {V, D}
    assert tokens == {128}  # of the P M T = 512, in four rounds


def test_remat_computes_each_layer_once_more():
    counts = {remat: len(update_products(Decoder(CONFIG, remat=remat))) for remat in ("none", "full", "dots_saveable")}
    assert counts["full"] > counts["none"]
    assert counts["dots_saveable"] == counts["none"]


def temporaries_bytes(model, **options):
    state = jax.eval_shape(lambda: start(model))
    return compiled(model, **options).lower(state, batch(model.config.vocab_size)).compile().memory_analysis()


def test_temporaries_hold_no_logits_of_all_tokens():
    """By default 64 MiB of logits at a time; half the vocabulary of these would fit in it."""
    wide = Decoder(dataclasses.replace(CONFIG, vocab_size=2**16), remat="full")
    all_logits = P * M * T * 2**16 * 4
    weights = sum(math.prod(x.shape) * 4 for x in jax.tree.leaves(jax.eval_shape(lambda: start(wide)).params))
    assert temporaries_bytes(wide).temp_size_in_bytes > all_logits / 4  # that there is a chunk of logits at all
    small = temporaries_bytes(wide, chunk_size=16).temp_size_in_bytes
    assert small < all_logits / 4
    assert small > weights  # the gradient


def test_the_state_is_updated_in_place():
    sizes = temporaries_bytes(Decoder(CONFIG))
    state = jax.eval_shape(lambda: start(Decoder(CONFIG)))
    held = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert sizes.alias_size_in_bytes >= held


# ---------------------------------------------------------------- micro-batches cut to their longest completion


def test_widths_are_quarters_in_multiples_of_16():
    assert trimmed_widths(512) == (128, 256, 384, 512)
    assert trimmed_widths(40) == (16, 32, 40)
    assert trimmed_widths(7) == (7,)


def test_a_micro_batch_has_a_program_for_every_width():
    sizes = {size for pair in update_products(Decoder(CONFIG), micro_batch_size=2) for x in pair for size in x.shape}
    assert {16, 32, 48, 64} <= sizes  # positions of the completions


def test_cutting_changes_nothing():
    model = Decoder(CONFIG)
    state, metrics, logprobs = compiled(model, micro_batch_size=2)(start(model), batch())
    expected, expected_metrics, expected_logprobs = compiled(model)(start(model), batch())
    counted = np.arange(T) < LENGTHS[..., None]
    np.testing.assert_allclose(np.asarray(logprobs)[counted], np.asarray(expected_logprobs)[counted], atol=1e-5)
    for a, b in zip(jax.tree.leaves(state.opt_state), jax.tree.leaves(expected.opt_state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for name, value in metrics.items():
        np.testing.assert_allclose(value, expected_metrics[name], rtol=1e-4, atol=1e-6, err_msg=name)


# ---------------------------------------------------------------- bfloat16 products, float32 weights


def test_bfloat16_products_give_nearly_the_float32_gradient():
    """bfloat16 has 8 bits: single products are off by 0.4 %, the whole gradient by about as much."""
    gradients = {}
    for dtype in ("float32", "bfloat16"):
        model = Decoder(CONFIG, remat="full", compute_dtype=dtype)
        state, _, logprobs = compiled(model, chunk_size=100)(start(model), batch()._replace(old_logprobs=None))
        assert {x.dtype for x in jax.tree.leaves((state.params, state.opt_state, logprobs))} == {jnp.dtype("float32")}
        gradients[dtype] = np.concatenate([np.ravel(x) for x in jax.tree.leaves(state.opt_state)])
    error = np.linalg.norm(gradients["bfloat16"] - gradients["float32"]) / np.linalg.norm(gradients["float32"])
    assert 1e-4 < error < 0.03


def test_under_bfloat16_every_layer_multiplies_bfloat16():
    model = Decoder(CONFIG, compute_dtype="bfloat16")
    dtypes = {tuple(str(x.dtype) for x in pair) for pair in update_products(model)}
    assert ("bfloat16", "bfloat16") in dtypes
    assert not any("bfloat16" in pair and "float32" in pair for pair in dtypes)


def test_adapters_on_a_base_computed_in_bfloat16():
    model, lora = Decoder(CONFIG, compute_dtype="bfloat16"), LoraConfig(rank=2)
    base = init_params(model, jax.random.key(0))
    state = init_state(model, init_adapters(CONFIG, lora, jax.random.key(1)), GRADIENTS, make_mesh(1, 1, 1), lora)
    after, metrics, _ = compiled(model, lora=lora)(state, batch(), base)
    assert metrics["grad_norm"] > 0
    assert {x.dtype for x in jax.tree.leaves(after.params)} == {jnp.dtype("float32")}


def test_adamw_needs_no_second_gradient_and_no_second_state():
    """Beside the state in place: the gradient, and of activations less than that."""
    deep = Decoder(
        dataclasses.replace(CONFIG, num_hidden_layers=64, hidden_size=64, intermediate_size=1024), remat="full"
    )
    optimizer, mesh = make_optimizer(OptimizerConfig(), num_steps=10), make_mesh(1, 1, 1)
    sizes = {"micro_batch_size": None, "chunk_size": None, "max_completion_length": T}
    update = make_update(deep, optimizer, ObjectiveConfig(), temperature=1.0, mesh=mesh, **sizes)
    params = jax.eval_shape(lambda: init_params(deep, jax.random.key(0)))
    state = TrainState(params, jax.eval_shape(optimizer.init, params), jax.ShapeDtypeStruct((), jnp.int32))
    gradient = sum(math.prod(x.shape) * 4 for x in jax.tree.leaves(params))
    held = update.lower(state, batch()).compile().memory_analysis().temp_size_in_bytes
    assert gradient < held < 1.8 * gradient


def test_gradients_of_layers_are_held_only_once_they_are_due():
    """The head's comes first, in chunks, with a second table and logits beside it; the layers' need more than these."""
    sizes = {"vocab_size": 2**16, "hidden_size": 64, "intermediate_size": 4096, "num_hidden_layers": 16}
    model = Decoder(dataclasses.replace(CONFIG, **sizes), remat="full")
    state = jax.eval_shape(lambda: start(model))
    short = jax.tree.map(lambda x: x[..., :8] if x.ndim == 3 else x, batch())
    # The code generator that most tests use holds more.
    usual = {"xla_cpu_use_fusion_emitters": True} if "fusion_emitters" in os.environ["XLA_FLAGS"] else None
    program = compiled(model, chunk_size=16).lower(state, short).compile(usual)
    held = program.memory_analysis().temp_size_in_bytes
    gradient, table = (sum(x.size * 4 for x in jax.tree.leaves(tree)) for tree in (state.params, state.params["embed"]))
    assert gradient < held < gradient + table
