import dataclasses
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from pods_jax.config.schema import OptimizerConfig
from pods_jax.learner.optimizer import make_optimizer, make_schedule, orthogonalised
from pods_jax.learner.state import FULL, state_shapes, state_shardings
from pods_jax.models import Decoder, ModelConfig
from pods_jax.parallel import make_mesh

CONFIG = OptimizerConfig(learning_rate=0.1)


def learning_rates(num_steps, **changes):
    schedule = make_schedule(dataclasses.replace(CONFIG, **changes), num_steps)
    return [float(schedule(step)) for step in range(num_steps + 1)]


@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
def test_constant_schedule(warmup_steps):
    """Warm-up is linear: its first step has a positive rate, its last one the full rate."""
    warmup = [0.1 * (step + 1) / warmup_steps for step in range(warmup_steps)]
    expected = warmup + [0.1] * (11 - warmup_steps)
    np.testing.assert_allclose(learning_rates(10, warmup_steps=warmup_steps), expected, rtol=1e-6)


@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
@pytest.mark.parametrize(
    ("name", "decay"), [("linear", lambda x: 1 - x), ("cosine", lambda x: (1 + math.cos(math.pi * x)) / 2)]
)
def test_decay_starts_after_the_warmup_and_ends_at_zero(name, decay, warmup_steps):
    rates = learning_rates(10, lr_scheduler_type=name, warmup_steps=warmup_steps)
    expected = [0.1 * decay(step / (10 - warmup_steps)) for step in range(11 - warmup_steps)]
    np.testing.assert_allclose(rates[warmup_steps:], expected, rtol=1e-6, atol=1e-8)
    assert rates[-1] == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
def test_warmup_stable_decay_falls_only_over_the_last_steps(warmup_steps):
    rates = learning_rates(10, lr_scheduler_type="warmup_stable_decay", warmup_steps=warmup_steps, decay_fraction=0.4)
    expected = [0.1] * (7 - warmup_steps) + [0.075, 0.05, 0.025, 0]
    np.testing.assert_allclose(rates[warmup_steps:], expected, rtol=1e-6, atol=1e-8)


def test_a_warmup_of_all_steps_is_no_error():
    rates = learning_rates(3, lr_scheduler_type="cosine", warmup_steps=3)
    np.testing.assert_allclose(rates[:3], [0.1 / 3, 0.2 / 3, 0.1], rtol=1e-6)


# ---------------------------------------------------------------- AdamW, written out

SHAPES = {
    "embed": (4, 3),
    "final_norm": (3,),
    "layers": {"q": (2, 3, 6), "q_bias": (2, 6), "attn_norm": (2, 3)},
    "lm_head": (3, 4),
}
MATRICES = {
    "embed": True,
    "final_norm": False,
    "layers": {"q": True, "q_bias": False, "attn_norm": False},
    "lm_head": True,
}


def random_tree(rng, scale):
    return jax.tree.map(lambda shape: rng.normal(0, scale, shape), SHAPES, is_leaf=lambda x: isinstance(x, tuple))


def numpy_adamw(c: OptimizerConfig, params, gradients, rates):
    """Loshchilov & Hutter 2019 after clipping by the global norm, in float64."""
    m = v = jax.tree.map(np.zeros_like, params)
    for step, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        norm = math.sqrt(sum((x**2).sum() for x in jax.tree.leaves(g)))
        shrink = min(1, c.max_grad_norm / norm)
        g = jax.tree.map(lambda x, shrink=shrink: x * shrink, g)
        m = jax.tree.map(lambda m, x: c.adam_beta1 * m + (1 - c.adam_beta1) * x, m, g)
        v = jax.tree.map(lambda v, x: c.adam_beta2 * v + (1 - c.adam_beta2) * x**2, v, g)

        def move(p, m, v, matrix, step=step, rate=rate):
            direction = m / (1 - c.adam_beta1**step) / (np.sqrt(v / (1 - c.adam_beta2**step)) + c.adam_epsilon)
            return p - rate * (direction + c.weight_decay * matrix * p)

        params = jax.tree.map(move, params, m, v, MATRICES)
    return params


def run_optimizer(c: OptimizerConfig, params, gradients):
    params = jax.tree.map(jnp.float32, params)
    optimizer = make_optimizer(c, num_steps=len(gradients))
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    for g in gradients:
        updates, state = step(jax.tree.map(jnp.float32, g), state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.parametrize("max_grad_norm", [1.0, 1e9])
def test_steps_equal_clipped_adamw_with_decay_only_on_matrices(max_grad_norm):
    """Gradients of very different sizes, so that clipping shows through Adam's scale invariance."""
    c = OptimizerConfig(
        learning_rate=0.1,
        lr_scheduler_type="linear",
        warmup_steps=2,
        adam_beta1=0.8,
        adam_beta2=0.95,
        adam_epsilon=1e-3,
        weight_decay=0.3,
        max_grad_norm=max_grad_norm,
    )
    rng = np.random.default_rng(0)
    params, gradients = random_tree(rng, 1.0), [random_tree(rng, scale) for scale in (0.01, 3.0, 0.5, 0.1)]
    expected = numpy_adamw(c, params, gradients, rates=[0.05, 0.1, 0.1, 0.05])
    actual = run_optimizer(c, params, gradients)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-6), actual, expected)


def test_a_max_grad_norm_of_zero_switches_clipping_off():
    rng = np.random.default_rng(0)
    params, gradients = random_tree(rng, 1.0), [random_tree(rng, scale) for scale in (0.01, 3.0)]
    off, huge = (run_optimizer(dataclasses.replace(CONFIG, max_grad_norm=x), params, gradients) for x in (0.0, 1e9))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), off, huge)


# ---------------------------------------------------------------- Muon

MUON = dataclasses.replace(CONFIG, name="muon", weight_decay=0.3, max_grad_norm=0.0, adam_epsilon=1e-3)


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (2, 5, 5)])
def test_orthogonalised_matrices_keep_their_singular_vectors(shape):
    x = np.random.default_rng(0).normal(size=shape)
    u, _, v = np.linalg.svd(x, full_matrices=False)
    near = u.swapaxes(-1, -2) @ np.asarray(orthogonalised(jnp.float32(x)), np.float64) @ v.swapaxes(-1, -2)
    values = np.diagonal(near, axis1=-2, axis2=-1)
    np.testing.assert_allclose(near, values[..., None] * np.eye(values.shape[-1]), atol=1e-4)
    assert (values > 0.6).all()
    assert (values < 1.3).all()


def test_the_direction_of_nothing_is_nothing():
    assert not orthogonalised(jnp.zeros((2, 3, 4))).any()


def test_the_first_muon_step_is_optax_own():
    """Where momentum has no past, bias correction is a factor, which has no effect."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(2, 5, 3))
    gradient = rng.normal(size=(2, 5, 3))
    layout = optax.contrib.MuonDimensionNumbers(1, 2)
    theirs = optax.contrib.scale_by_muon(weight_dimension_numbers=layout, eps=1e-12)
    direction, _ = theirs.update(jnp.float32(gradient), theirs.init(jnp.float32(start)))
    ours = run_optimizer(
        dataclasses.replace(MUON, weight_decay=0.0), {"layers": {"q": start}}, [{"layers": {"q": gradient}}]
    )
    expected = start - 0.1 * 0.2 * math.sqrt(5) * np.asarray(direction)
    np.testing.assert_allclose(ours["layers"]["q"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 6), (6, 3)])
def test_muon_steps_are_those_of_torch(shape):
    """torch iterates in bfloat16, so directions agree to about a hundredth."""
    torch = pytest.importorskip("torch", reason="the extra 'parity' brings torch")
    rng = np.random.default_rng(0)
    start = rng.normal(size=shape)
    gradients = [rng.normal(size=shape) * scale for scale in (0.01, 3.0, 0.5)]
    theirs = torch.nn.Parameter(torch.tensor(start.T.copy(), dtype=torch.float32))  # torch: [out, in]
    optimizer = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.3, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        theirs.grad = torch.tensor(gradient.T.copy(), dtype=torch.float32)
        optimizer.step()
    ours = run_optimizer(MUON, {"layers": {"q": start[None]}}, [{"layers": {"q": g[None]}} for g in gradients])
    np.testing.assert_allclose(ours["layers"]["q"][0], theirs.detach().numpy().T, atol=0.01)
    assert np.abs(np.asarray(ours["layers"]["q"][0]) - start).max() > 0.1


def test_all_but_the_matrices_of_layers_has_adamw():
    rng = np.random.default_rng(0)
    params = random_tree(rng, 1.0)
    gradients = [random_tree(rng, scale) for scale in (0.5, 3.0)]
    muon = run_optimizer(MUON, params, gradients)
    adamw = run_optimizer(dataclasses.replace(MUON, name="adamw"), params, gradients)
    same = jax.tree.map(lambda a, b: bool(np.allclose(a, b, rtol=1e-5)), muon, adamw)
    assert same["layers"].pop("q") is False
    assert all(jax.tree.leaves(same))


def test_muon_holds_one_moment_of_a_layers_matrices_laid_out_like_them():
    model = Decoder(ModelConfig(32, 8, 16, 2, 2, 1, 4))
    mesh = make_mesh()
    optimizer = make_optimizer(MUON, 4)
    shapes = state_shapes(model, optimizer, mesh)
    shardings = state_shardings(model, optimizer, mesh, FULL)
    assert jax.tree.structure(shardings.opt_state) == jax.tree.structure(shapes.opt_state)
    q = shapes.params["layers"]["q"]
    leaves = jax.tree_util.tree_leaves_with_path(shapes.opt_state)
    moments = [x for path, x in leaves if "'q'" in jax.tree_util.keystr(path)]
    assert [(x.shape, x.sharding) for x in moments] == [(q.shape, q.sharding)]


ON_A_MESH = """
import jax, numpy as np
from pods_jax.config.schema import OptimizerConfig
from pods_jax.learner import init_state, make_optimizer
from pods_jax.models import Decoder, ModelConfig
from pods_jax.models.decoder import init_params
from pods_jax.parallel import make_mesh
model = Decoder(ModelConfig(32, 8, 16, 2, 2, 2, 4))
optimizer = make_optimizer(OptimizerConfig(name="muon", learning_rate=0.1), 4)
gradients = init_params(model, jax.random.key(1))
found = []
for mesh in (make_mesh(1, 2, 2), make_mesh(1, 1, 1, devices=jax.devices()[:1])):
    state = init_state(model, init_params(model, jax.random.key(0)), optimizer, mesh)
    updates, after = jax.jit(optimizer.update)(gradients, state.opt_state, state.params)
    assert jax.tree.map(lambda x: x.shape, after) == jax.tree.map(lambda x: x.shape, state.opt_state)
    leaves = jax.tree_util.tree_leaves_with_path(state.opt_state)
    moments = [x for path, x in leaves if "'q'" in jax.tree_util.keystr(path)]
    print(len(moments), moments[0].size // moments[0].addressable_shards[0].data.size)
    found.append(updates)
print(max(jax.tree.leaves(jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), *found))))
"""


def test_muon_on_a_mesh_is_muon():
    """Momentum is split like its matrix, and the iterations go over the parts."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", ON_A_MESH], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    on_mesh, alone, difference = done.stdout.splitlines()
    assert (on_mesh, alone) == ("1 4", "1 1")
    assert float(difference) < 1e-5
