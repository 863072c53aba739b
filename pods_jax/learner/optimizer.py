"""AdamW with global-norm clipping and a schedule, from `OptimizerConfig` (TRL's and transformers' option names)."""

import jax
import jax.numpy as jnp
import optax

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
    """Clip, then AdamW; weight decay acts on matrices only (not on norms and biases)."""
    return optax.chain(
        clip_by_global_norm(c.max_grad_norm) if c.max_grad_norm else optax.identity(),
        optax.adamw(
            make_schedule(c, num_steps),
            b1=c.adam_beta1,
            b2=c.adam_beta2,
            eps=c.adam_epsilon,
            weight_decay=c.weight_decay,
            mask=_is_matrix,
        ),
    )


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
