"""A run's parts, built from its config: policy, sampler, rewards, update, allocator."""

import dataclasses
import datetime
import functools
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pods_jax.allocation import ALLOCATORS, Allocator
from pods_jax.config.schema import Config, LoraConfig, ObjectiveConfig, OptimizerConfig
from pods_jax.config.validate import validate_on_devices
from pods_jax.data import Example, PromptStream
from pods_jax.data.tokenizers import HFTokenizer, Tokenizer
from pods_jax.errors import UserError
from pods_jax.io import writing
from pods_jax.learner import TrainState, init_state, make_optimizer, make_update
from pods_jax.learner.group_gradients import GroupGradients, make_group_gradients
from pods_jax.learner.state import FULL
from pods_jax.learner.update import BatchLoss
from pods_jax.models import Decoder, ModelConfig, save_pretrained
from pods_jax.models.decoder import Params, init_tree
from pods_jax.models.loading import load_checkpoint, open_pretrained
from pods_jax.models.lora import adapt, merge, trained_weights
from pods_jax.models.peft_adapter import load_adapter_for
from pods_jax.models.quantized import quantize
from pods_jax.models.shardings import param_shardings, weight_shardings
from pods_jax.parallel import batch_sharding, make_meshes, num_shards, place
from pods_jax.rewards import RewardPool
from pods_jax.rewards.extract import prefill
from pods_jax.rollout import Completions
from pods_jax.rollout.engine import Engine, Orders, SamplingParams, Served, make_engine
from pods_jax.rollout.weights import layer_shardings, sampler_weights
from pods_jax.training.background import Ahead
from pods_jax.training.experience import Rewarder
from pods_jax.training.inputs import fingerprints, refuse_replaced
from pods_jax.training.metrics import PhaseClock, Totals, new_totals
from pods_jax.training.prompts import RunData, load_data
from pods_jax.training.reference import Scorer, make_scorer
from pods_jax.training.turns import check_environment, generate_turns
from pods_jax.training.warm_start import OnStep, warm_started_params

KEPT = 8
"""Programs of a kind that a process keeps: its runs share them, also those of methods that take turns."""


@dataclasses.dataclass
class Run:
    """The parts of a run. `state`, `stream`, `allocator` and the fields from `totals` on change.

    Attributes:
      base: the frozen weights beneath the adapters that `state` holds; None where it holds all weights.
      ref_params: the KL's reference policy; None without KL.
      totals: cumulative rollouts, tokens, rounds and `wall_time_s` (see `metrics.new_totals`), in every checkpoint.
      inputs: fingerprints of the data and the weights that were read; see `inputs.fingerprints`.
      version: the step after which the policy was taken.
      engine: generates completions with the policy.
      ahead: the next step's rollouts, under `rollout.ahead`.
      ended: the reason why the allocator has no more to give; empty while it has more.
      skipped_in_a_row: number of the last updates that were skipped, as their loss or gradient was not finite.
    """

    config: Config
    data: RunData
    mesh: jax.sharding.Mesh
    sampling_mesh: jax.sharding.Mesh
    model: Decoder
    state: TrainState
    base: Params | None
    ref_params: Params | None
    update: Callable
    rewarder: Rewarder
    scorer: Scorer
    stream: PromptStream
    allocator: Allocator
    clock: PhaseClock
    totals: Totals
    inputs: dict[str, str]
    version: int = 0
    ended: str = ""
    skipped_in_a_row: int = 0
    engine: Engine = dataclasses.field(init=False)
    ahead: Ahead = dataclasses.field(init=False)

    def __post_init__(self):
        self.engine = make_engine(self.config, self._served())
        self.ahead = Ahead()

    def _served(self) -> Served:
        tokenizer = self.data.tokenizer
        return Served(
            model=self.model,
            params=self.sampling_params,
            save=functools.partial(self.save_policy, dtype=self.config.model.compute_dtype),
            decode=tokenizer.decode,
            eos_ids=tokenizer.eos_ids,
            pad_id=tokenizer.pad_id,
            absent_ids=tokenizer.absent_ids(self.model.config.vocab_size),
            config=self.config.rollout,
            sharding=batch_sharding(self.sampling_mesh),
        )

    def generate(self, orders: Orders, sampling: SamplingParams, examples: Sequence[Example]) -> Completions:
        """The engine's completions, of several turns where there is an environment. examples: those of the prompts."""
        if self.config.environment.name is None:
            return self.engine.generate(orders, sampling)
        partner = self.config.environment
        return generate_turns(self.engine.generate, orders, sampling, examples, self.data.tokenizer, partner)

    def sampling_params(self) -> Params:
        """The policy as `generate` takes it: in model.compute_dtype, layer by layer, laid out for sampling."""
        weights = sampler_weights(self.policy_params(), self.config.model.compute_dtype)
        if self.sampling_mesh is self.mesh:
            return weights
        shape = self.model.config
        shardings = layer_shardings(param_shardings(shape, self.sampling_mesh), shape.num_hidden_layers)
        with self.clock.phase("reshard"):
            return jax.block_until_ready(jax.device_put(weights, shardings))

    def policy_params(self) -> Params:
        """The decoder's parameters, adapters beside what they adapt."""
        if self.base is None:
            return self.state.params
        return adapt(self.base, self.state.params, self.config.lora.scale)

    def wait_for_devices(self) -> None:
        """Returns when no rollouts are generated on the devices that train."""
        if not set(self.mesh.devices.flat).isdisjoint(self.engine.devices()):
            self.ahead.wait()

    def save_policy(self, folder: Path, dtype: str | None = None) -> None:
        """Writes weights, adapters merged into them, and tokenizer, if it has files, as a Hugging Face folder.

        Of several processes all must call it; the main one writes. dtype: of the weights; None: their own.
        """
        tokenizer = self.data.tokenizer
        files = tokenizer if isinstance(tokenizer, HFTokenizer) else None
        with writing(folder, "folder"):
            save_pretrained(folder, self.model, merge(self.policy_params()), tokenizer=files, dtype=dtype)

    def host_state(self) -> dict[str, Any]:
        """Everything that is not on the devices, as JSON-able values and numpy arrays."""
        return {
            "stream": self.stream.state_dict(),
            "allocator": self.allocator.state_dict(),
            "totals": dict(self.totals),
            "ahead": self.ahead.state_dict(),
            "ended": self.ended,
            "skipped_in_a_row": self.skipped_in_a_row,
            "inputs": self.inputs,
            "date": self.data.date and self.data.date.isoformat(),
        }

    def moving_reference(self) -> Params | None:
        """The reference if it follows the policy, and so is a part of checkpoints."""
        return self.ref_params if self.config.objective.sync_ref_model else None

    def load(
        self,
        step: int,
        state: TrainState,
        host: dict[str, Any],
        reference: Params | None = None,
        inputs: Container[str] | None = None,
    ) -> None:
        """Goes on from the checkpoint of a step.

        reference: that of the checkpoint; None: the one that was made anew.
        inputs: names of the fingerprints to compare; None: all.

        Raises:
          UserError: data or weights were replaced since (see `inputs.refuse_replaced`).
        """
        self.version = step
        self._take_date(host.get("date"))
        refuse_replaced(host.get("inputs", {}), self.inputs, self.config, inputs)
        self.state = state
        self.ref_params = self.ref_params if reference is None else reference
        self.stream.load_state_dict(host["stream"])
        self.allocator.load_state_dict(host["allocator"])
        self.totals.update(host["totals"])
        self.ahead.load_state_dict(host.get("ahead", {}), self.data.tokenizer.pad_id)
        self.ended = host["ended"]
        self.skipped_in_a_row = host["skipped_in_a_row"]

    def _take_date(self, date: str | None) -> None:
        """Renders prompts that name the day with that of the run's first life."""
        dated = isinstance(self.data.tokenizer, HFTokenizer) and self.data.tokenizer.dated
        if dated and date is not None and datetime.date.fromisoformat(date) != self.data.date:
            self.data = load_data(self.config, datetime.date.fromisoformat(date))
            self.stream = PromptStream(self.data.train.examples, self.data.train.tokens, self.config.seed)
            self.inputs = fingerprints(self.config, self.data)


def make_run(
    config: Config,
    data: RunData,
    pool: RewardPool,
    on_warm_start: OnStep,
    optimizer: optax.GradientTransformation | None = None,
) -> Run:
    """Builds the policy and compiles nothing yet. optimizer: of the state; None: the config's."""
    mesh, sampling_mesh = make_meshes(config.mesh)
    validate_on_devices(config, num_shards(mesh))
    if config.rollout.ahead and jax.process_count() > 1:
        raise UserError("rollout.ahead = 1 needs a single process: in several the order of programs would differ")
    if config.environment.name is not None:
        [example, *_] = data.train.examples or data.test.examples
        check_environment(config.environment, data.tokenizer, example)
    model, params = load_policy(config, data, mesh, on_warm_start)
    base, trained = split_trained(config, model, params, mesh)
    return Run(
        config=config,
        data=data,
        mesh=mesh,
        sampling_mesh=sampling_mesh,
        model=model,
        state=init_state(model, trained, optimizer or optimizer_of(config), mesh, config.lora),
        base=base,
        ref_params=_reference(config, base, trained) if config.objective.beta else None,
        update=update_function(config, model, mesh),
        rewarder=_rewarder(config, data, pool),
        scorer=make_scorer(config, model, mesh),
        stream=PromptStream(data.train.examples, data.train.tokens, config.seed),
        allocator=ALLOCATORS[config.allocation.name](config),
        clock=PhaseClock(),
        totals=new_totals(),
        inputs=fingerprints(config, data),
    )


def _rewarder(config: Config, data: RunData, pool: RewardPool) -> Rewarder:
    examples = data.train.examples
    start = prefill(data.tokenizer.decode(data.train.tokens[0]))
    return Rewarder(config.reward, data.tokenizer, data.dataset.task, pool, examples, start)


def optimizer_of(config: Config) -> optax.GradientTransformation:
    """The optimizer, whose schedule ends with the run."""
    return make_optimizer(config.optimizer, total_updates(config))


def total_updates(config: Config) -> int:
    """Number of updates in a run of training.num_steps."""
    return config.training.num_steps * config.objective.updates_per_step


def update_function(config: Config, model: Decoder, mesh: jax.sharding.Mesh, **options: Any) -> Callable:
    """The update of a config; options: further arguments of `make_update`."""
    micro = config.optimizer.micro_batch_size_per_device
    return _update(
        model, config.optimizer, total_updates(config), config.objective, mesh=mesh,
        temperature=config.rollout.temperature, micro_batch_size=micro and micro * num_shards(mesh),
        max_completion_length=config.rollout.max_completion_length, lora=config.lora, **options,
    )  # fmt: skip


@functools.lru_cache(maxsize=KEPT)
def _update(
    model: Decoder, optimizer: OptimizerConfig, num_updates: int, objective: ObjectiveConfig, **options: Any
) -> Callable:
    """One for the runs of a process that differ in nothing else, such as seeds, so that they compile it once."""
    chunk_size = optimizer.logprob_chunk_size
    return make_update(model, make_optimizer(optimizer, num_updates), objective, chunk_size=chunk_size, **options)


def group_gradients_of(config: Config, model: Decoder, mesh: jax.sharding.Mesh) -> GroupGradients:
    """The gradients of single groups in the loss of a config."""
    return _group_gradients(
        model.clone(activations=batch_sharding(mesh)), config.objective, config.rollout.temperature,
        config.optimizer.logprob_chunk_size, config.rollout.max_completion_length, config.lora, mesh,
    )  # fmt: skip


@functools.lru_cache(maxsize=KEPT)
def _group_gradients(
    model: Decoder, objective: ObjectiveConfig, temperature: float, chunk_size: int | None, length: int,
    lora: LoraConfig, mesh: jax.sharding.Mesh,
) -> GroupGradients:  # fmt: skip
    """One for the runs of a process that differ in nothing else, as `_update`."""
    shardings = weight_shardings(trained_weights(model.config, lora), mesh)
    loss = BatchLoss(model, objective, temperature, chunk_size, length, lora.scale, shardings)
    return make_group_gradients(loss, mesh)


def _reference(config: Config, base: Params | None, trained: Params) -> Params:
    """The initial policy, apart from what updates change: fresh adapters leave it at their base."""
    if base is not None and config.lora.path is None:
        return base
    initial = jax.tree.map(jnp.copy, trained)
    return initial if base is None else adapt(base, initial, config.lora.scale)


# ---------------------------------------------------------------- the policy


def load_policy(
    config: Config, data: RunData, mesh: jax.sharding.Mesh, on_warm_start: OnStep
) -> tuple[Decoder, Params]:
    """The initial policy, placed on the mesh: pretrained weights, or a small model from scratch (warm-started)."""
    if config.model.path:
        checkpoint = open_pretrained(config.model.path)
        _check_vocabulary(config.model.path, data.tokenizer, checkpoint.config)
        _check_context(config, data, checkpoint.config)
        model, params = load_checkpoint(checkpoint, dtype=config.model.dtype, mesh=mesh)
        return model.clone(**computed(config)), params
    model = Decoder(scratch_config(config, data.tokenizer), **computed(config))
    if config.warm_start.num_steps:
        params = warm_started_params(config, model, data.dataset, data.tokenizer, on_warm_start)
        params = jax.tree.map(lambda x: x.astype(config.model.dtype), params)
        return model, place(params, param_shardings(model.config, mesh))
    return model, init_sharded(model.config, FULL, config.seed, mesh, config.model.dtype)


def computed(config: Config) -> dict[str, str | None]:
    """The fields of a Decoder that say how it computes."""
    return {name: getattr(config.model, name) for name in ("attention", "remat", "compute_dtype")}


def init_sharded(
    config: ModelConfig, lora: LoraConfig, seed: int, mesh: jax.sharding.Mesh, dtype: str = "float32"
) -> Params:
    """Random values of `trained_weights`, each device drawing its own parts."""
    key = np.asarray(jax.random.key_data(jax.random.key(seed)))  # which several processes may give to one program
    return _initialiser(config, lora, mesh, dtype)(key)


@functools.lru_cache(maxsize=KEPT)
def _initialiser(config: ModelConfig, lora: LoraConfig, mesh: jax.sharding.Mesh, dtype: str) -> Callable:
    """One for all seeds, so that a process compiles it once."""
    weights = trained_weights(config, lora)

    def init(key: jax.Array) -> Params:
        drawn = init_tree(jax.random.wrap_key_data(key), weights)
        return jax.tree.map(lambda x: x.astype(dtype), drawn)

    return jax.jit(init, out_shardings=weight_shardings(weights, mesh))


def split_trained(
    config: Config, model: Decoder, params: Params, mesh: jax.sharding.Mesh
) -> tuple[Params | None, Params]:
    """The frozen weights (None without LoRA), and the trained ones."""
    if not config.lora.rank:
        return None, params
    base = quantize(params, config.lora.quantize_base) if config.lora.quantize_base else params
    if config.lora.path is None:
        return base, init_sharded(model.config, config.lora, config.seed, mesh)
    shardings = weight_shardings(trained_weights(model.config, config.lora), mesh)
    return base, jax.device_put(load_adapter_for(config.lora, model.config), shardings)


def _check_vocabulary(path: str, tokenizer: Tokenizer, model: ModelConfig) -> None:
    if tokenizer.vocab_size > model.vocab_size:
        raise UserError(
            f"{path}: the tokenizer has ids up to {tokenizer.vocab_size - 1}, the embedding {model.vocab_size} rows"
        )


def _check_context(config: Config, data: RunData, model: ModelConfig) -> None:
    """UserError if the longest prompt and completion are beyond the positions that the model was made for."""
    sets = (data.train, data.test, *data.others.values())
    prompt = max(len(tokens) for examples in sets for tokens in examples.tokens)
    completion = max(config.rollout.max_completion_length, config.evaluation.max_completion_length or 0)
    limit = model.max_position_embeddings
    if prompt + completion > limit and not config.model.allow_longer_context:
        raise UserError(
            f"{config.model.path}: the longest prompt has {prompt} tokens and rollout.max_completion_length (or "
            f"evaluation.max_completion_length) is {completion}, together more than the model's "
            f"max_position_embeddings = {limit} "
            "(model.allow_longer_context = True allows it)"
        )


def scratch_config(config: Config, tokenizer: Tokenizer) -> ModelConfig:
    """The shape of a policy from scratch."""
    m = config.model
    return ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=m.hidden_size,
        intermediate_size=m.intermediate_size,
        num_hidden_layers=m.num_hidden_layers,
        num_attention_heads=m.num_attention_heads,
        num_key_value_heads=m.num_key_value_heads,
        head_dim=m.hidden_size // m.num_attention_heads,
        rope_theta=m.rope_theta,
    )
