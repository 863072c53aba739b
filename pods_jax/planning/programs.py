"""The programs of a training step, lowered for a plan: from shapes only, without weights and without their devices."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax

from pods_jax.buckets import bucket, ceil_div
from pods_jax.learner import Batch
from pods_jax.learner.batch import block_size, num_blocks
from pods_jax.models.lora import adapt
from pods_jax.parallel import batch_sharding, num_shards
from pods_jax.planning import flops
from pods_jax.planning.generation import generation, later_turns
from pods_jax.planning.run_shapes import Program, RunShapes, device_bytes
from pods_jax.training.reference import make_scorer
from pods_jax.training.run import update_function


def programs(run: RunShapes) -> Iterator[Program]:
    """All programs that the training loop runs on the devices in a step, at their largest shapes."""
    objective = run.config.objective
    yield from generation(run)
    if run.config.environment.name is not None and run.config.environment.max_turns > 1:
        yield from later_turns(run)
    if objective.beta:
        yield scoring(run)
    if objective.steps_per_generation > 1 and objective.old_logprobs == "recompute":
        yield rescoring(run)
    if objective.top_entropy_quantile < 1:
        yield entropies(run)
    yield update(run)


def scoring(run: RunShapes) -> Program:
    """The reference's log-probs of the kept rollouts, or of all rollouts where the KL is a part of the reward."""
    config = run.config
    rollouts = _kept_rollouts(run)
    if config.objective.reward_beta:
        rollouts = _rollout_shapes(run, *_blocks(run, config.rollout.num_generations))
    shares_base = run.reference is None
    weights = run.base if shares_base else run.reference
    without_adapters = dataclasses.replace(config.lora, rank=0)
    return Program(
        name="scoring",
        lower=functools.partial(make_scorer(config, run.model, run.mesh).lower, weights, *rollouts),
        given={"frozen weights" if shares_base else "reference": device_bytes(weights)},
        within={},
        beside=sum(run.held().values()) - device_bytes(weights),
        flops=flops.scoring_flops(run.model.config, *_sizes(rollouts), without_adapters, config.model.attention),
        runs=1 if config.objective.reward_beta else config.objective.steps_per_generation,
    )


def rescoring(run: RunShapes) -> Program:
    """The policy's log-probs of the rollouts that later optimizer steps of a pass train on: their old log-probs."""
    return _policy_scoring(run, "rescoring", "logprobs", run.config.objective.steps_per_generation - 1)


def entropies(run: RunShapes) -> Program:
    """The policy's entropies of the kept rollouts' tokens, the highest of which count in the loss."""
    return _policy_scoring(run, "entropies", "entropies", run.config.objective.steps_per_generation)


def _policy_scoring(run: RunShapes, name: str, field: str, runs: int) -> Program:
    """A field of the `Scores` of an optimizer step's rollouts under the policy."""
    config = run.config
    rollouts = _kept_rollouts(run)
    params = run.state.params
    weights = params if run.base is None else adapt(run.base, params, config.lora.scale)
    return Program(
        name=name,
        lower=functools.partial(make_scorer(config, run.model, run.mesh).lower, weights, *rollouts, field=field),
        given={name: run.held()[name] for name in ("parameters", "frozen weights")},
        within={},
        beside=sum(run.held().values()) - device_bytes(weights),
        flops=flops.scoring_flops(run.model.config, *_sizes(rollouts), config.lora, config.model.attention),
        runs=runs,
    )


def update(run: RunShapes) -> Program:
    """One optimizer step on the kept rollouts, all of the greatest length: only its micro-batches are compiled."""
    config = run.config
    batch = batch_shapes(run)
    rollouts = (batch.prompts, batch.prompt_lengths, batch.completions)
    step = update_function(config, run.model, run.mesh, widths=lambda T: (T,))
    held = run.held()
    gradients = device_bytes(run.state.params)
    recomputes = config.model.remat == "full"
    return Program(
        name="update",
        lower=functools.partial(step.lower, run.state, batch, run.base),
        given={name: size for name, size in held.items() if name != "reference"},
        within={"gradients": gradients},
        beside=held["reference"],
        flops=flops.update_flops(run.model.config, *_sizes(rollouts), config.lora, recomputes, config.model.attention),
        runs=config.objective.updates_per_step,
    )


# ---------------------------------------------------------------- the shapes of a batch


Rollouts = tuple[Any, Any, Any]
"""Shapes of prompts [P, S], their lengths [P] and completions [P, n, T]."""


def batch_shapes(run: RunShapes) -> Batch:
    """The batch that `make_batch` would make of a step's rollouts if all have the greatest length."""
    objective = run.config.objective
    prompts, prompt_lengths, completions = _kept_rollouts(run)
    row = completions.update(shape=completions.shape[:2])
    token = completions.update(dtype="float32")
    has_old = objective.old_logprobs == "behaviour" or objective.steps_per_generation > 1
    return Batch(
        prompts=prompts,
        prompt_lengths=prompt_lengths,
        completions=completions,
        lengths=row,
        advantages=row.update(dtype="float32"),
        behaviour_logprobs=token,
        old_logprobs=token if has_old else None,
        ref_logprobs=token if objective.loss_beta else None,
        loss_mask=None if run.config.environment.name is None else completions.update(dtype="bool"),
        policy_mask=completions.update(dtype="bool") if objective.top_entropy_quantile < 1 else None,
    )


def _kept_rollouts(run: RunShapes) -> Rollouts:
    """The rollouts of one optimizer step."""
    config = run.config
    return _rollout_shapes(run, *_blocks(run, config.selection.num_kept, config.objective.steps_per_generation))


def _sizes(rollouts: Rollouts) -> tuple[int, int, int, int]:
    """P, n, S and T."""
    prompts, _, completions = rollouts
    P, n, T = completions.shape
    return P, n, prompts.shape[1], T


def _blocks(run: RunShapes, per_group: int, updates: int = 1) -> tuple[int, int]:
    """Number and size of the blocks that `make_batch` makes of num_prompts / updates groups of `per_group` rollouts."""
    size = block_size(run.config)
    needed = run.config.rollout.num_prompts // updates * ceil_div(per_group, size)
    return num_blocks(run.config, needed, num_shards(run.mesh)), size


def _rollout_shapes(run: RunShapes, P: int, n: int) -> Rollouts:
    r = run.config.rollout
    shapes = (P, bucket(r.max_prompt_length)), (P,), (P, n, r.max_completion_length)
    sharding = batch_sharding(run.mesh)
    return tuple(jax.ShapeDtypeStruct(shape, "int32", sharding=sharding) for shape in shapes)
