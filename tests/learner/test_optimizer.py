import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pods_jax.config.schema import OptimizerConfig
from pods_jax.learner.optimizer import make_optimizer, make_schedule

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
def test_warmup_stable_decay_falls_over_the_last_steps_alone(warmup_steps):
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
def test_steps_equal_clipped_adamw_with_decay_on_matrices_alone(max_grad_norm):
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
