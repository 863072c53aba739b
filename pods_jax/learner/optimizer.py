"""AdamW and Muon with global-norm clipping and a schedule, from `OptimizerConfig` (transformers' option names)."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from pods_jax.config.schema import OptimizerConfig


def make_schedule(c: OptimizerConfig, num_steps: int) -> optax.Schedule:
    """Linear warm-up over `warmup_steps`, then constant, or linear or cosine decay to 0 at `num_steps`.

    "warmup_stable_decay" is constant up to the last `decay_fraction` of all steps, and linear from there.
    """
    decay_steps = max(num_steps - c.warmup_steps, 1)
    last_steps = min(max(round(num_steps * c.decay_fraction), 1), decay_steps)
    decay = {
        "constant": optax.constant_schedule(c.learning_rate),
        "linear": optax.linear_schedule(c.learning_rate, 0.0, decay_steps),
        "cosine": optax.cosine_decay_schedule(c.learning_rate, decay_steps),
        "warmup_stable_decay": optax.linear_schedule(c.learning_rate, 0.0, last_steps, decay_steps - last_steps),
    }[c.lr_scheduler_type]
    if not c.warmup_steps:
        return decay
    warmup = optax.linear_schedule(c.learning_rate / c.warmup_steps, c.learning_rate, max(c.warmup_steps - 1, 1))
    return optax.join_schedules([warmup, decay], [c.warmup_steps])


def make_optimizer(c: OptimizerConfig, num_steps: int) -> optax.GradientTransformation:
    """Clip, then the optimizer `c.name`; weight decay acts on matrices only (not on norms and biases)."""
    return optax.chain(
        clip_by_global_norm(c.max_grad_norm) if c.max_grad_norm else optax.identity(),
        OPTIMIZERS[c.name](c, make_schedule(c, num_steps)),
    )


def _adamw(c: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    return optax.adamw(
        schedule,
        b1=c.adam_beta1,
        b2=c.adam_beta2,
        eps=c.adam_epsilon,
        weight_decay=c.weight_decay,
        mask=_is_matrix,
    )


def _muon(c: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    """Muon for the matrices of layers, AdamW for embeddings, head and vectors (Jordan et al. 2024, the blog post Muon).

    Updates have the size of AdamW's (Liu et al. 2025, arXiv 2502.16982, section 2.2), so its learning rates fit.
    Optax's own Muon corrects the momentum's bias, which changes Nesterov's direction; this one follows the authors'.
    """
    muon = optax.chain(
        optax.trace(c.muon_momentum, nesterov=True),  # a multiple of the authors' mean, which has no effect
        optax.stateless(lambda updates, params=None: jax.tree.map(_muon_direction, updates)),
        optax.add_decayed_weights(c.weight_decay),
        optax.scale_by_learning_rate(schedule),
    )
    return optax.partition({"muon": muon, "adamw": _adamw(c, schedule)}, _muon_labels)


OPTIMIZERS = {"adamw": _adamw, "muon": _muon}
"""Functions (config, schedule) -> transformation, by the values of `optimizer.name`."""


def _muon_labels(params: Any) -> Any:
    if not isinstance(params, Mapping):  # the placeholder by which optax.tree.map_params finds moments in a state
        return params
    labels = jax.tree.map(lambda matrix: "muon" if matrix else "adamw", _is_matrix(params))
    outside = {name: jax.tree.map(lambda _: "adamw", tree) for name, tree in params.items() if name != "layers"}
    return labels | outside


def _muon_direction(momentum: Float[Array, "L i o"]) -> Float[Array, "L i o"]:
    """Each layer's orthogonalised matrix, times 0.2 sqrt(max(i, o)): its root mean square is about AdamW's, 0.2."""
    return 0.2 * math.sqrt(max(momentum.shape[-2:])) * orthogonalised(momentum)


def orthogonalised(x: Float[Array, "*layers i o"]) -> Float[Array, "*layers i o"]:
    """U V' of each matrix U S V', up to singular values of 0.7 to 1.2: five Newton-Schulz iterations of fifth order.

    Coefficients: Jordan et al. 2024.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / jnp.maximum(jnp.linalg.norm(x, axis=(-2, -1), keepdims=True), 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Scales the gradient to a norm of at most `limit`, by one factor.

    XLA fuses the factor into the gradient's next use. It does not fuse optax's division, which keeps a second gradient.
    """

    def clip(updates, params=None):
        factor = jnp.minimum(1.0, limit / optax.tree.norm(updates))
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates)

    return optax.stateless(clip)


def _is_matrix(params):
    """A tree of bools. Layers are stacked, so one of their vectors has two axes."""
    return {k: jax.tree.map(lambda a, k=k: a.ndim > (2 if k == "layers" else 1), v) for k, v in params.items()}
