"""One optimizer step on a batch of groups, with exact gradient accumulation, jitted over the mesh."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from pods_jax.buckets import ceil_div
from pods_jax.config.schema import LoraConfig, ObjectiveConfig
from pods_jax.learner.batch import Batch
from pods_jax.learner.logprobs import group_logprobs
from pods_jax.learner.state import FULL, TrainState, state_shardings
from pods_jax.models.decoder import Decoder, Params
from pods_jax.models.lora import adapt
from pods_jax.objective.losses import completion_mask, token_weights, weighted_loss
from pods_jax.parallel import batch_sharding, overlap_options, replicated

OPTIONS = (
    "surrogate", "epsilon", "epsilon_high", "delta", "sapo_temperature_pos", "sapo_temperature_neg", "kl_estimator",
    "use_bias_correction_kl", "importance_sampling_level", "importance_sampling_mode", "importance_sampling_cap",
    "importance_sampling_floor",
)  # fmt: skip
"""Keys of the objective that a token's loss takes as they are."""


def trimmed_widths(T: int) -> tuple[int, ...]:
    """Lengths to which a micro-batch's completions are cut: quarters of T, as multiples of 16 tokens, and T itself."""
    return tuple(sorted({min(T, ceil_div(T * quarters, 64) * 16) for quarters in (1, 2, 3, 4)}))


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
      lora: the adapters that the state holds; rank 0: it holds the model's parameters.
      widths: of T, the lengths that a micro-batch's completions may be cut to, rising, T the last; each is compiled.
    """
    shardings = state_shardings(model, optimizer, mesh, lora)
    loss = BatchLoss(
        model.clone(activations=batch_sharding(mesh)), objective, temperature, chunk_size, max_completion_length,
        lora.scale, shardings.params, widths,
    )  # fmt: skip
    return jax.jit(
        _Program(loss, optimizer, micro_batch_size).update,
        donate_argnums=0,
        out_shardings=(shardings, replicated(mesh), batch_sharding(mesh)),
        compiler_options=compiler_options(mesh),
    )


def compiler_options(mesh: jax.sharding.Mesh) -> dict[str, str]:
    """On a CPU, the order that holds least: XLA's usual one, for concurrency, allocates a gradient before it is due."""
    if mesh.devices.flat[0].platform == "cpu":
        return {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
    return overlap_options(mesh)


class Micro(NamedTuple):
    """A micro-batch: rollouts, the mask of their tokens, and the tokens' weights in the loss.

    bonus: the tokens' weights in the entropy bonus; None without it.
    """

    batch: Batch
    mask: Array
    weights: Array
    bonus: Array | None


@dataclasses.dataclass(frozen=True, eq=False)
class _Program:
    """The functions that `make_update` compiles."""

    loss: "BatchLoss"
    optimizer: optax.GradientTransformation
    micro_batch_size: int | None

    def update(self, state: TrainState, batch: Batch, base: Params | None = None):
        P, m, _ = batch.completions.shape
        count = P * m // self.micro_batch_size if self.micro_batch_size else 1
        micro = jax.tree.map(functools.partial(cut, count=count), self.loss.weighed(batch))
        (loss, grads, sums), logprobs = self.loss.gradient(state.params, base, micro)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        metrics = {name: value / micro.mask.sum() for name, value in sums.items()}  # NaN where nothing is trained on
        metrics |= {"loss": loss, "grad_norm": norm, "skipped_updates": 1 - finite}
        state = jax.lax.cond(finite, self._stepped, lambda state, _: state, state, grads)
        return state, metrics, uncut(logprobs)

    def _stepped(self, state: TrainState, grads: Params) -> TrainState:
        updates, opt_state = self.optimizer.update(grads, state.opt_state, state.params)
        return TrainState(optax.apply_updates(state.params, updates), opt_state, state.step + 1)


@dataclasses.dataclass(frozen=True, eq=False)
class BatchLoss:
    """The loss of a batch and its gradient, as a sum over micro-batches. shardings: of the gradient.

    The other fields are arguments of `make_update`.
    """

    model: Decoder
    objective: ObjectiveConfig
    temperature: float
    chunk_size: int | None
    max_completion_length: int
    lora_scale: float
    shardings: Any
    widths: Callable[[int], tuple[int, ...]] = trimmed_widths

    def gradient(self, params: Params, base: Params | None, micro: Micro):
        """(loss, gradient, sums of statistics) over micro-batches [count, ...], and log-probabilities of each."""
        step = functools.partial(self._micro_step, params, base)
        return _accumulate(step, micro, self.widths(micro.batch.completions.shape[-1]))

    def weighed(self, batch: Batch) -> Micro:
        """The batch in one piece, with its mask and its tokens' weights."""
        mask = batch.own_mask
        weights = self._token_weights(batch, mask)
        bonus = None
        if self.objective.entropy_coef:
            counting = mask if batch.policy_mask is None else mask & batch.policy_mask
            bonus = self.objective.entropy_coef * counting / jnp.maximum(counting.sum(), 1)
        return Micro(batch._replace(left_out_lengths=None, left_out_tokens=None), mask, weights, bonus)

    def _token_weights(self, batch: Batch, mask: Array) -> Array:
        """The weight of every token in the loss; rollouts that are left out count in its denominators."""
        shape = mask.shape
        lengths = batch.lengths
        if batch.left_out_lengths is not None:
            lengths = jnp.concatenate([lengths, batch.left_out_lengths])
            mask = jnp.concatenate([mask, completion_mask(batch.left_out_tokens, shape[-1])])
        limit = self.max_completion_length
        weights = token_weights(mask.reshape(-1, shape[-1]), self.objective.loss_type, limit, lengths.ravel())
        return weights.reshape(mask.shape)[: shape[0]]

    def _micro_step(self, params: Params, base: Params | None, micro: Micro):
        """(loss, gradient, sums of statistics) of a micro-batch, and its log-probabilities.

        The gradient is at no time whole on a device.
        """
        (loss, (sums, logprobs)), grads = jax.value_and_grad(self._micro_loss, has_aux=True)(params, base, micro)
        return (loss, jax.lax.with_sharding_constraint(grads, self.shardings), sums), logprobs

    def _micro_loss(self, params: Params, base: Params | None, micro: Micro):
        """A micro-batch's share of the loss; sums of its per-token statistics, and its log-probabilities."""
        scores = group_logprobs(
            self.model,
            params if base is None else adapt(base, params, self.lora_scale),
            micro.batch.prompts,
            micro.batch.prompt_lengths,
            micro.batch.completions,
            temperature=self.temperature,
            chunk_size=self.chunk_size,
            entropy_gradient=micro.bonus is not None,
        )
        options = {name: getattr(self.objective, name) for name in OPTIONS} | {"beta": self.objective.loss_beta}
        row_scores, rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (scores, micro))
        loss, sums = weighted_loss(
            row_scores.logprobs, rows.batch.old_logprobs, rows.batch.advantages, rows.mask, rows.weights,
            ref_logprobs=rows.batch.ref_logprobs, behaviour_logprobs=rows.batch.behaviour_logprobs,
            policy_mask=rows.batch.policy_mask, **options,
        )  # fmt: skip
        sums["entropy"] = jnp.where(rows.mask, row_scores.entropies, 0.0).sum()
        if rows.bonus is not None:
            loss -= jnp.where(rows.mask, row_scores.entropies, 0.0).ravel() @ rows.bonus.ravel()
        return loss, (sums, scores.logprobs)


# ---------------------------------------------------------------- micro-batches


def cut(x: Array, count: int) -> Array:
    """[P, ...] -> [count, P / count, ...]; where devices hold consecutive groups, each has its share of every cut."""
    return x.reshape(-1, count, *x.shape[1:]).swapaxes(0, 1)


def uncut(x: Array) -> Array:
    """The inverse of `cut`."""
    return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])


def _accumulate(step: Callable[[Micro], Any], micro: Micro, widths: tuple[int, ...]):
    """Loss, gradient and statistics summed over the micro-batches, one after the other; log-probabilities of each."""
    first = jax.tree.map(lambda x: x[0], micro)
    if len(micro.mask) == 1:  # no second copy of the gradient to add it to
        total, logprobs = step(first)
        return total, logprobs[None]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step, first))
    programs = [lambda _: zeros, *(functools.partial(_at_width, step, width) for width in widths)]

    def body(total, micro):
        longest = micro.batch.lengths.max()
        index = jnp.where(longest > 0, 1 + jnp.searchsorted(jnp.array(widths), longest), 0)  # empty ones cost nothing
        share, logprobs = jax.lax.switch(index, programs, micro)
        return jax.tree.map(jnp.add, total, share), logprobs

    return jax.lax.scan(body, zeros[0], micro)


def _at_width(step: Callable[[Micro], Any], width: int, micro: Micro):
    """`step` on the first `width` tokens of every rollout; the log-probabilities beyond are 0."""
    T = micro.mask.shape[-1]
    trimmed = jax.tree.map(lambda x: x[..., :width] if x.ndim == 3 else x, micro)  # [P, m, T]; others have no T
    share, logprobs = step(trimmed)
    return share, jnp.pad(logprobs, ((0, 0), (0, 0), (0, T - width)))
