"""One optimizer step on a batch of groups, with exact gradient accumulation, jitted over the mesh."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from pods_jax.config.schema import LoraConfig, ObjectiveConfig
from pods_jax.learner.logprobs import Scores, group_logprobs
from pods_jax.models.decoder import Decoder, Params, init_tree
from pods_jax.models.lora import adapt, trained_weights
from pods_jax.models.shardings import weight_shardings
from pods_jax.objective.losses import completion_mask, token_losses, token_weights
from pods_jax.parallel import batch_sharding, place, replicated

FULL = LoraConfig(rank=0)  # all weights are trained


class TrainState(NamedTuple):
    """What an update changes; params: the model's, or the adapters that are trained in their place."""

    params: Params
    opt_state: Any
    step: Int[Array, ""]


class Batch(NamedTuple):
    """The kept rollouts of P groups, m each; a block of a larger group, with its prompt, passes for a group as well.

    Attributes:
      prompts: [P, S] right-padded; prompt_lengths: [P].
      completions: [P, m, T] right-padded; lengths: [P, m], 0 for a rollout that is left out of the loss.
      advantages: [P, m].
      behaviour_logprobs: [P, m, T] from the sampler, for the mismatch metric and its correction.
      old_logprobs: [P, m, T] the policy that the ratio is taken against; None: the current one (ratio exactly 1).
      ref_logprobs: [P, m, T] the KL's reference; None without KL.
    """

    prompts: Int[Array, "P S"]
    prompt_lengths: Int[Array, " P"]
    completions: Int[Array, "P m T"]
    lengths: Int[Array, "P m"]
    advantages: Float[Array, "P m"]
    behaviour_logprobs: Float[Array, "P m T"]
    old_logprobs: Float[Array, "P m T"] | None = None
    ref_logprobs: Float[Array, "P m T"] | None = None


def init_state(
    model: Decoder,
    params: Params,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    lora: LoraConfig = FULL,
) -> TrainState:
    """A state born sharded: parameters placed by the partition rules, optimizer moments like their parameters."""
    shardings = _state_shardings(model, optimizer, mesh, lora)
    params = place(params, shardings.params)
    opt_state = jax.jit(optimizer.init, out_shardings=shardings.opt_state)(params)
    return TrainState(params, opt_state, place(np.int32(0), shardings.step))


def state_shapes(
    model: Decoder,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    lora: LoraConfig = FULL,
) -> TrainState:
    """The shapes and shardings of what `init_state` returns, for compiling an update ahead of time."""
    params = jax.eval_shape(
        functools.partial(init_tree, weights=trained_weights(model.config, lora)), jax.random.key(0)
    )
    shapes = TrainState(params, jax.eval_shape(optimizer.init, params), jax.ShapeDtypeStruct((), jnp.int32))
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        _state_shardings(model, optimizer, mesh, lora),
    )


def _state_shardings(
    model: Decoder, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh, lora: LoraConfig
) -> TrainState:
    """A TrainState of shardings."""
    weights = trained_weights(model.config, lora)
    shardings = weight_shardings(weights, mesh)
    shapes = jax.eval_shape(functools.partial(init_tree, weights=weights), jax.random.key(0))
    opt_shardings = optax.tree.map_params(
        optimizer,
        lambda _, s: s,
        jax.eval_shape(optimizer.init, shapes),
        shardings,
        transform_non_params=lambda _: replicated(mesh),
    )
    return TrainState(shardings, opt_shardings, replicated(mesh))


def trimmed_widths(T: int) -> tuple[int, ...]:
    """What a micro-batch's completions are cut to: quarters of T, as multiples of 16 tokens, and T itself."""
    return tuple(sorted({min(T, -(-T * quarters // 64) * 16) for quarters in (1, 2, 3, 4)}))


_OPTIONS = (
    "surrogate", "epsilon", "epsilon_high", "delta", "kl_estimator", "use_bias_correction_kl",
    "importance_sampling_level", "importance_sampling_cap",
)  # fmt: skip


def make_update(
    model: Decoder,
    optimizer: optax.GradientTransformation,
    objective: ObjectiveConfig,
    *,
    temperature: float,
    micro_batch_size: int | None,
    chunk_size: int | None,
    max_completion_length: int,
    mesh: jax.sharding.Mesh,
    lora: LoraConfig = FULL,
    widths: Callable[[int], tuple[int, ...]] = trimmed_widths,
) -> Callable[..., tuple[TrainState, dict[str, Array], Array]]:
    """Compiles (state, batch) -> (state, metrics, log-probabilities [P, m, T] before the step). The state is donated.

    Where the state holds adapters, the function takes the frozen weights beneath them as its third argument.

    The loss is a sum over tokens of weight x token loss, and the weights (which hold every denominator) are computed
    over the whole batch first; so any split into micro-batches gives the same gradient. A micro-batch computes only as
    many positions as its longest completion needs (one of `widths`).

    Where the loss or a gradient is not finite the state stays as it is, to the bit, and `skipped_updates` is 1.

    Args:
      temperature: that the completions were sampled at.
      micro_batch_size: rollouts, over all devices, whose activations exist at a time: a multiple of m; None: all.
      chunk_size: tokens projected onto the vocabulary at a time; None: a micro-batch's.
      max_completion_length: the constant of `dr_grpo`.
      lora: which adapters the state holds; rank 0: it holds the model's parameters.
      widths: of T, the lengths that a micro-batch's completions may be cut to, in order, T the last; each is compiled.
    """
    options = {name: getattr(objective, name) for name in _OPTIONS} | {"beta": objective.loss_beta}
    model = model.clone(activations=batch_sharding(mesh))
    shardings = _state_shardings(model, optimizer, mesh, lora)

    def micro_loss(params, base, batch: Batch, mask, weights):
        scores = group_logprobs(
            model,
            params if base is None else adapt(base, params, lora.scale),
            batch.prompts,
            batch.prompt_lengths,
            batch.completions,
            temperature=temperature,
            chunk_size=chunk_size,
        )
        loss, stats = _weighted_loss(scores, batch, mask, weights, options)
        return loss, (stats, scores.logprobs)

    def update(state: TrainState, batch: Batch, base: Params | None = None):
        m, T = batch.completions.shape[1:]
        mask = completion_mask(batch.lengths, T)
        weights = token_weights(mask.reshape(-1, T), objective.loss_type, max_completion_length).reshape(mask.shape)
        count = mask.shape[0] * m // micro_batch_size if micro_batch_size else 1
        micro = jax.tree.map(functools.partial(cut, count=count), (batch, mask, weights))
        step = functools.partial(_micro_step, micro_loss, state.params, base, shardings.params)
        (loss, grads, sums), (gap, logprobs) = _accumulate(step, micro, widths(T))
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        metrics = {k: v / jnp.maximum(mask.sum(), 1) for k, v in sums.items()}
        metrics |= {"loss": loss, "grad_norm": norm, "sampler_mismatch/max": gap.max(), "skipped_updates": 1 - finite}
        state = jax.lax.cond(finite, functools.partial(_updated, optimizer), lambda state, _: state, state, grads)
        return state, metrics, joined(logprobs)

    return jax.jit(
        update,
        donate_argnums=0,
        out_shardings=(shardings, replicated(mesh), batch_sharding(mesh)),
        compiler_options=_compiler_options(mesh),
    )


def _compiler_options(mesh: jax.sharding.Mesh) -> dict[str, str]:
    """On a CPU, the order that holds least: XLA's usual one, for concurrency, allocates a gradient before it is due."""
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    return {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"} if on_cpu else {}


def _updated(optimizer: optax.GradientTransformation, state: TrainState, grads: Params) -> TrainState:
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    return TrainState(optax.apply_updates(state.params, updates), opt_state, state.step + 1)


def _weighted_loss(scores: Scores, batch: Batch, mask: Array, weights: Array, options: dict[str, Any]):
    """A micro-batch's share of the loss; sums of its per-token statistics; its largest sampler/learner gap."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (scores, batch, mask, weights))
    scores, batch, mask, weights = flat
    old = jax.lax.stop_gradient(scores.logprobs) if batch.old_logprobs is None else batch.old_logprobs
    losses, stats = token_losses(
        scores.logprobs, old, batch.advantages, mask, ref_logprobs=batch.ref_logprobs,
        behaviour_logprobs=batch.behaviour_logprobs, **options,
    )  # fmt: skip
    gap = jnp.where(mask, jnp.abs(scores.logprobs - batch.behaviour_logprobs), 0.0)
    stats |= {"entropy": scores.entropies, "sampler_mismatch/mean": gap}
    sums = {k: jnp.where(mask, v, 0.0).sum() for k, v in stats.items()}
    return jnp.where(mask, losses, 0.0).ravel() @ weights.ravel(), (sums, gap.max())


def cut(x: Array, count: int) -> Array:
    """[P, ...] -> [count, P / count, ...]; where devices hold consecutive groups, each has its share of every cut."""
    return x.reshape(-1, count, *x.shape[1:]).swapaxes(0, 1)


def joined(x: Array) -> Array:
    """The inverse of `cut`."""
    return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])


def _accumulate(step: Callable, micro: tuple[Batch, Array, Array], widths: tuple[int, ...]):
    """Loss, gradient and statistics summed over the micro-batches, one after the other; gaps and log-probs of each."""
    first = jax.tree.map(lambda x: x[0], micro)
    if len(micro[0].lengths) == 1:  # no second copy of the gradient to add it to
        total, each = step(first)
        return total, jax.tree.map(lambda x: x[None], each)

    def body(total, micro):
        index = jnp.searchsorted(jnp.array(widths), micro[0].lengths.max())
        share, each = jax.lax.switch(index, [functools.partial(_at_width, step, w) for w in widths], micro)
        return jax.tree.map(jnp.add, total, share), each

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step, first)[0])
    return jax.lax.scan(body, zeros, micro)


def _micro_step(
    micro_loss: Callable, params: Params, base: Params | None, shardings: Any, micro: tuple[Batch, Array, Array]
):
    """(loss, gradient, sums of statistics) of a micro-batch, and its (largest gap, log-probabilities).

    shardings: of the gradient, which is at no time whole on a device.
    """
    (loss, ((sums, gap), logprobs)), grads = jax.value_and_grad(micro_loss, has_aux=True)(params, base, *micro)
    return (loss, jax.lax.with_sharding_constraint(grads, shardings), sums), (gap, logprobs)


def _at_width(step: Callable, width: int, micro: tuple[Batch, Array, Array]):
    """`step` on the first `width` tokens of every rollout; the log-probabilities beyond are 0."""
    T = micro[0].completions.shape[-1]
    share, (gap, logprobs) = step(jax.tree.map(lambda x: x[..., :width] if x.ndim == 3 else x, micro))
    return share, (gap, jnp.pad(logprobs, ((0, 0), (0, 0), (0, T - width))))
