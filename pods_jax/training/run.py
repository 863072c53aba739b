"""A run's parts, built from its config."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pods_jax.allocation import ALLOCATORS, Allocator
from pods_jax.config import Config
from pods_jax.data import PromptStream
from pods_jax.learner import TrainState, init_state, make_optimizer, make_update
from pods_jax.models import Decoder
from pods_jax.models.decoder import Params
from pods_jax.models.lora import adapt
from pods_jax.parallel import make_mesh, num_shards, param_shardings
from pods_jax.rewards import RewardPool
from pods_jax.rollout.weights import layer_shardings, sampler_weights
from pods_jax.training.accounts import Totals, new_totals
from pods_jax.training.clock import PhaseClock
from pods_jax.training.setup import Task, load_policy, split_trained
from pods_jax.validation import validate_on_devices

Metrics = dict[str, float]


@dataclasses.dataclass
class Run:
    """Everything a step needs. `state`, `stream`, `allocator` and the fields from `totals` on change.

    base: the frozen weights beneath the adapters that `state` holds; None where it holds all weights.
    totals: cumulative rollouts, tokens, rounds and `wall_time_s` (see `training/accounts.py`); monotone, part of every
      checkpoint.
    ended: why the allocator has no more to give; empty while it has.
    skipped_in_a_row: how many of the last updates were skipped, as their loss or gradient was not finite.
    """

    config: Config
    task: Task
    mesh: jax.sharding.Mesh
    sampling_mesh: jax.sharding.Mesh
    model: Decoder
    state: TrainState
    base: Params | None
    ref_params: Params | None
    update: Callable
    stream: PromptStream
    allocator: Allocator
    pool: RewardPool
    clock: PhaseClock
    totals: Totals
    ended: str = ""
    skipped_in_a_row: int = 0

    def sampling_params(self) -> Params:
        """What `generate` takes: the policy in model.compute_dtype, layer by layer and laid out for sampling."""
        weights, c = sampler_weights(self.policy_params(), self.config.model.compute_dtype), self.model.config
        if self.sampling_mesh is self.mesh:
            return weights
        shardings = layer_shardings(param_shardings(c, self.sampling_mesh), c.num_hidden_layers)
        with self.clock.phase("reshard"):
            return jax.block_until_ready(jax.device_put(weights, shardings))

    def policy_params(self) -> Params:
        """The decoder's parameters, adapters beside what they adapt."""
        if self.base is None:
            return self.state.params
        return adapt(self.base, self.state.params, self.config.lora.scale)

    def host_state(self) -> dict[str, Any]:
        """All that is not on the devices, as JSON-able values and numpy arrays."""
        return {
            "stream": self.stream.state_dict(),
            "allocator": self.allocator.state_dict(),
            "totals": dict(self.totals),
            "ended": self.ended,
            "skipped_in_a_row": self.skipped_in_a_row,
        }

    def load(self, state: TrainState, host: dict[str, Any]) -> None:
        """Goes on from a checkpoint."""
        self.state = state
        self.stream.load_state_dict(host["stream"])
        self.allocator.load_state_dict(host["allocator"])
        self.totals.update(host["totals"])
        self.ended = host["ended"]
        self.skipped_in_a_row = host["skipped_in_a_row"]


def make_run(config: Config, task: Task, pool: RewardPool, on_warm_start: Callable[[int, float], None]) -> Run:
    """Builds the policy and compiles nothing yet."""
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    validate_on_devices(config, num_shards(mesh))
    model, params = load_policy(config, task, mesh, on_warm_start)
    base, trained = split_trained(config, model, params, mesh)
    optimizer = optimizer_of(config)
    return Run(
        config=config,
        task=task,
        mesh=mesh,
        sampling_mesh=make_mesh(**config.mesh.sampling) if config.mesh.sampling else mesh,
        model=model,
        state=init_state(model, trained, optimizer, mesh, config.lora),
        base=base,
        ref_params=_reference(params, base) if config.objective.beta else None,
        update=update_function(config, model, mesh),
        stream=PromptStream(task.train.examples, task.train.tokens, config.seed),
        allocator=ALLOCATORS[config.allocation.name](config),
        pool=pool,
        clock=PhaseClock(),
        totals=new_totals(),
    )


def optimizer_of(config: Config) -> optax.GradientTransformation:
    """Its schedule ends with the run."""
    return make_optimizer(config.optimizer, config.training.num_steps * config.objective.updates_per_step)


def update_function(config: Config, model: Decoder, mesh: jax.sharding.Mesh, **options: Any) -> Callable:
    """What `make_update` gives for a config; `options` are its own."""
    micro = config.optimizer.micro_batch_size_per_device
    return make_update(
        model, optimizer_of(config), config.objective, mesh=mesh, temperature=config.rollout.temperature,
        micro_batch_size=micro and micro * num_shards(mesh), chunk_size=config.optimizer.logprob_chunk_size,
        max_completion_length=config.rollout.max_completion_length, lora=config.lora, **options,
    )  # fmt: skip


def _reference(params: Params, base: Params | None) -> Params:
    """The initial policy, apart from what updates change: fresh adapters leave it at their base."""
    return jax.tree.map(jnp.copy, params) if base is None else base
