"""One optimizer step on a batch of groups, with exact gradient accumulation, jitted over the mesh."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from pods_jax.config import ObjectiveConfig
from pods_jax.models.decoder import Decoder, Params
from pods_jax.objective.losses import completion_mask, token_losses, token_weights
from pods_jax.parallel import batch_sharding, param_shardings, replicated
from pods_jax.rollout.scoring import group_logprobs


class TrainState(NamedTuple):
    """What an update changes."""

    params: Params
    opt_state: Any
    step: Int[Array, ""]


class Batch(NamedTuple):
    """The kept rollouts of P groups, m each.

    Attributes:
      prompts: [P, S] right-padded; prompt_lengths: [P].
      completions: [P, m, T] right-padded; lengths: [P, m], 0 for a rollout that is left out of the loss.
      advantages: [P, m].
      behaviour_logprobs: [P, m, T] from the sampler, for the mismatch metric.
      old_logprobs: [P, m, T] the policy that the ratio is taken against; None: the current one (ratio exactly 1).
      ref_logprobs: [P, m, T] the KL's reference; None without KL.
    """

    prompts: Int[Array, "P S"]
    prompt_lengths: Int[Array, "P"]
    completions: Int[Array, "P m T"]
    lengths: Int[Array, "P m"]
    advantages: Float[Array, "P m"]
    behaviour_logprobs: Float[Array, "P m T"]
    old_logprobs: Float[Array, "P m T"] | None = None
    ref_logprobs: Float[Array, "P m T"] | None = None


def init_state(model: Decoder, params: Params, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh) -> TrainState:
    """A state born sharded: parameters placed by the partition rules, optimizer moments like their parameters."""
    shardings = param_shardings(model.config, mesh)
    params = jax.device_put(params, shardings)
    opt_shardings = optax.tree.map_params(
        optimizer,
        lambda _, s: s,
        jax.eval_shape(optimizer.init, params),
        shardings,
        transform_non_params=lambda _: replicated(mesh),
    )
    opt_state = jax.jit(optimizer.init, out_shardings=opt_shardings)(params)
    return TrainState(params, opt_state, jax.device_put(jnp.int32(0), replicated(mesh)))


def split_micro_batches(batch: Batch, micro_batch_size: int) -> Batch:
    """Adds a leading axis of micro-batches of `micro_batch_size` rollouts: whole groups, or equal parts of one.

    A part of a group carries a copy of its prompt. micro_batch_size must be a multiple or a divisor of m, and divide P m.
    """
    P, m = batch.lengths.shape
    part = min(m, micro_batch_size)
    groups = micro_batch_size // part
    per_prompt = batch._replace(**{k: None for k in ("prompts", "prompt_lengths")})
    rows = jax.tree.map(lambda x: x.reshape(-1, groups, part, *x.shape[2:]), per_prompt)
    prompts, lengths = (jnp.repeat(x, m // part, 0) for x in (batch.prompts, batch.prompt_lengths))
    return rows._replace(
        prompts=prompts.reshape(-1, groups, prompts.shape[-1]), prompt_lengths=lengths.reshape(-1, groups)
    )


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
) -> Callable[[TrainState, Batch], tuple[TrainState, dict[str, Array], Array]]:
    """Compiles (state, batch) -> (state, metrics, log-probabilities [P, m, T] before the step). The state is donated.

    The loss is a sum over tokens of weight x token loss, and the weights (which hold every denominator) are computed
    over the whole batch first; so any split into micro-batches gives the same gradient.
    """
    options = {
        name: getattr(objective, name)
        for name in ("epsilon", "epsilon_high", "delta", "beta", "kl_estimator", "importance_sampling_level")
    }

    def micro_loss(params, batch: Batch, mask, weights):
        scores = group_logprobs(
            model, params, batch.prompts, batch.prompt_lengths, batch.completions,
            temperature=temperature, chunk_size=chunk_size,
        )  # fmt: skip
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (scores.logprobs, batch, mask, weights))
        logprobs, rows, mask, weights = flat
        old = jax.lax.stop_gradient(logprobs) if rows.old_logprobs is None else rows.old_logprobs
        losses, stats = token_losses(
            logprobs, old, rows.advantages, mask, ref_logprobs=rows.ref_logprobs, **options
        )
        gap = jnp.abs(logprobs - rows.behaviour_logprobs)
        stats |= {"entropy": scores.entropies.reshape(mask.shape), "sampler_mismatch/mean": gap}
        sums = {k: jnp.where(mask, v, 0.0).sum() for k, v in stats.items()}
        return jnp.where(mask, losses, 0.0).ravel() @ weights.ravel(), (sums, jnp.where(mask, gap, 0.0).max(), scores.logprobs)

    def accumulate(params, micro):
        """Loss, gradient and statistics summed over the micro-batches, one after the other."""

        def body(total, xs):
            (loss, (sums, gap, logprobs)), grads = jax.value_and_grad(micro_loss, has_aux=True)(params, *xs)
            return jax.tree.map(jnp.add, total, (loss, grads, sums)), (gap, logprobs)

        first = jax.tree.map(lambda x: x[0], micro)
        (loss, (sums, _, _)), grads = jax.eval_shape(jax.value_and_grad(micro_loss, has_aux=True), params, *first)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (loss, grads, sums))
        return jax.lax.scan(body, zeros, micro)

    def update(state: TrainState, batch: Batch):
        mask = completion_mask(batch.lengths, batch.completions.shape[-1])
        weights = token_weights(mask.reshape(-1, mask.shape[-1]), objective.loss_type, max_completion_length)
        weights = weights.reshape(mask.shape)
        size = micro_batch_size or mask.shape[0] * mask.shape[1]
        micro = split_micro_batches(batch, size)
        parts = jax.tree.map(lambda x: x.reshape(*micro.lengths.shape, -1), (mask, weights))
        (loss, grads, sums), (gap, logprobs) = accumulate(state.params, (micro, *parts))
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        metrics = {k: v / jnp.maximum(mask.sum(), 1) for k, v in sums.items()}
        metrics |= {"loss": loss, "grad_norm": optax.tree.norm(grads), "sampler_mismatch/max": gap.max()}
        state = TrainState(optax.apply_updates(state.params, updates), opt_state, state.step + 1)
        return state, metrics, logprobs.reshape(batch.completions.shape)

    return jax.jit(update, donate_argnums=0, out_shardings=(None, replicated(mesh), batch_sharding(mesh)))
