"""From a config to its parts: data, tokenizer, policy."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pods_jax.allocation import ALLOCATORS, Allocator
from pods_jax.config.schema import Config, to_dict
from pods_jax.config.validate import validate_on_devices
from pods_jax.data import DATASETS, Dataset, Example, PromptStream
from pods_jax.data.tokenizers import CharTokenizer, Tokenizer, load_tokenizer
from pods_jax.errors import UserError
from pods_jax.learner import TrainState, init_state, make_optimizer, make_update
from pods_jax.models import Decoder, ModelConfig
from pods_jax.models.decoder import Params, init_tree, model_weights
from pods_jax.models.loading import load_pretrained
from pods_jax.models.lora import adapt, adapter_weights
from pods_jax.models.quantized import quantize
from pods_jax.models.shardings import param_shardings, weight_shardings
from pods_jax.parallel import make_mesh, num_shards, place
from pods_jax.rewards import RewardPool, check_gold
from pods_jax.rollout.weights import layer_shardings, sampler_weights
from pods_jax.training.metrics import PhaseClock, Totals, new_totals
from pods_jax.training.warm_start import warm_started_params


@dataclasses.dataclass(frozen=True)
class TokenisedExamples:
    """Examples whose rendered prompts fit, their token ids, and how many were dropped as too long."""

    examples: tuple[Example, ...]
    tokens: tuple[tuple[int, ...], ...]
    dropped: int


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set as the policy sees it; others: the test problems of `evaluation.sets`, by prefix."""

    dataset: Dataset
    tokenizer: Tokenizer
    train: TokenisedExamples
    test: TokenisedExamples
    others: Mapping[str, TokenisedExamples] = dataclasses.field(default_factory=dict)


def load_task(config: Config) -> Task:
    """Data and tokenizer of a config.

    Raises:
      UserError: missing or malformed data, no tokenizer, no demonstrations for a warm start, or no prompt that fits
        rollout.max_prompt_length.
    """
    tokenizer = load_tokenizer(config.model.path) if config.model.path else None
    dataset = load_dataset(config)
    if tokenizer is None:
        tokenizer = char_tokenizer(config, dataset)
        _check_demonstrations(config, dataset)
    limit = config.rollout.max_prompt_length
    test = dataset.test[: config.evaluation.num_prompts]
    return Task(
        dataset,
        tokenizer,
        _tokenise("training set", dataset, dataset.train, tokenizer, limit),
        _tokenise("test set", dataset, test, tokenizer, limit),
        {
            prefix: _tokenise(f"evaluation.sets.{prefix}", dataset, examples, tokenizer, limit)
            for prefix, examples in load_evaluation_sets(config, dataset).items()
        },
    )


def load_dataset(config: Config) -> Dataset:
    """Training problems, the problems to evaluate on, and the verifier of both, prompts rendered and golds checked.

    Raises:
      UserError: missing or malformed data; no training problems; golds for different verifiers; a gold that does not
        equal itself.
    """
    d = config.data
    options = to_dict(d)
    dataset = DATASETS[d.name](d.path, options["options"], config.warm_start.seed)
    if not dataset.train:
        raise UserError(f"data set '{d.name}' has no training problems: name it as data.eval_name")
    test, test_options, skipped = dataset, options["options"], dataset.skipped
    if d.eval_name is not None:
        test_options = options["eval_options"]
        test = _other_set(config, dataset.task, d.eval_name, d.eval_path, test_options)
        skipped += test.skipped
    task = config.reward.task or dataset.task
    train, train_skipped = _checked(dataset.train, task, options["options"].get("on_bad", "error"))
    tested, test_skipped = _checked(test.test, task, test_options.get("on_bad", "error"))
    return dataclasses.replace(
        dataset,
        train=_rendered(train, d.prompt_template),
        test=_rendered(tested, d.prompt_template),
        task=task,
        system=dataset.system if d.system_prompt is None else d.system_prompt,
        skipped=skipped + train_skipped + test_skipped,
    )


def load_evaluation_sets(config: Config, dataset: Dataset) -> dict[str, tuple[Example, ...]]:
    """The test problems of `evaluation.sets` by prefix, prompts rendered and golds checked.

    Raises:
      UserError: as `load_dataset`.
    """
    found = {}
    for prefix, chosen in config.evaluation.parsed_sets()[0].items():
        options = to_dict(chosen)["options"]
        other = _other_set(config, dataset.task, chosen.name, chosen.path, options)
        examples, _ = _checked(other.test, dataset.task, options.get("on_bad", "error"))
        found[prefix] = _rendered(examples[: chosen.num_prompts], config.data.prompt_template)
    return found


def _other_set(config: Config, task: str, name: str, path: str | None, options: Mapping[str, Any]) -> Dataset:
    """A data set whose golds are for the same verifier as the training set's."""
    other = DATASETS[name](path, options, config.warm_start.seed)
    if other.task != task and config.reward.task is None:
        raise UserError(
            f"data sets '{config.data.name}' and '{name}' have golds for '{task}' and '{other.task}': "
            "set reward.task to a verifier for both"
        )
    return other


def _checked(examples: Sequence[Example], task: str, on_bad: str) -> tuple[list[Example], int]:
    """The examples whose golds can be used, and how many can not."""
    usable = []
    for example in examples:
        try:
            check_gold(example.gold, task)
        except UserError as error:
            if on_bad != "skip":
                raise UserError(f"{example.where or 'generated example'}: {error}") from error
        else:
            usable.append(example)
    return usable, len(examples) - len(usable)


def _rendered(examples: Sequence[Example], template: str) -> tuple[Example, ...]:
    return tuple(dataclasses.replace(e, prompt=template.replace("{question}", e.prompt)) for e in examples)


def char_tokenizer(config: Config, dataset: Dataset) -> CharTokenizer:
    """The tokenizer of a policy from scratch. UserError if the data set says not of which characters it consists."""
    if not dataset.alphabet:
        raise UserError(f"data set '{config.data.name}' has no alphabet to train a policy from scratch: set model.path")
    return CharTokenizer(dataset.alphabet)


def _check_demonstrations(config: Config, dataset: Dataset) -> None:
    if config.warm_start.num_steps and dataset.demonstrate is None:
        raise UserError(f"data set '{config.data.name}' has no demonstrations to start from: warm_start.num_steps = 0")


def _tokenise(
    name: str, dataset: Dataset, examples: Sequence[Example], tokenizer: Tokenizer, limit: int
) -> TokenisedExamples:
    tokens = [tuple(tokenizer.encode_prompt(e.prompt, dataset.system)) for e in examples]
    fits = [len(t) <= limit for t in tokens]
    if not any(fits):
        shortest = min(map(len, tokens), default=0)
        raise UserError(
            f"{name}: every prompt is longer than rollout.max_prompt_length = {limit} tokens (the shortest has "
            f"{shortest})"
        )
    kept = [(e, t) for e, t, fit in zip(examples, tokens, fits, strict=True) if fit]
    return TokenisedExamples(*map(tuple, zip(*kept, strict=True)), len(examples) - len(kept))


def load_policy(
    config: Config, task: Task, mesh: jax.sharding.Mesh, on_warm_start: Callable[[int, float], None]
) -> tuple[Decoder, Params]:
    """The initial policy, placed on the mesh: pretrained weights, or a small model from scratch (warm-started)."""
    if config.model.path:
        model, params = load_pretrained(config.model.path, dtype=config.model.dtype, mesh=mesh)
        _check_vocabulary(config.model.path, task.tokenizer, model.config)
        return model.clone(remat=config.model.remat, compute_dtype=config.model.compute_dtype), params
    model = Decoder(
        scratch_config(config, task.tokenizer), remat=config.model.remat, compute_dtype=config.model.compute_dtype
    )
    if config.warm_start.num_steps:
        params = warm_started_params(config, model, task.dataset, task.tokenizer, on_warm_start)
        params = jax.tree.map(lambda x: x.astype(config.model.dtype), params)
        return model, place(params, param_shardings(model.config, mesh))
    return model, init_sharded(model_weights(model.config), config.seed, mesh, config.model.dtype)


def init_sharded(weights: Any, seed: int, mesh: jax.sharding.Mesh, dtype: str = "float32") -> Params:
    """Random values for a tree of declarations, each device drawing its own parts."""

    def init():
        return jax.tree.map(lambda x: x.astype(dtype), init_tree(jax.random.key(seed), weights))

    return jax.jit(init, out_shardings=weight_shardings(weights, mesh))()


def split_trained(
    config: Config, model: Decoder, params: Params, mesh: jax.sharding.Mesh
) -> tuple[Params | None, Params]:
    """What stays frozen (None without LoRA), and what is trained."""
    if not config.lora.rank:
        return None, params
    base = quantize(params, config.lora.quantize_base) if config.lora.quantize_base else params
    return base, init_sharded(adapter_weights(model.config, config.lora), config.seed, mesh)


def _check_vocabulary(path: str, tokenizer: Tokenizer, model: ModelConfig) -> None:
    if tokenizer.vocab_size > model.vocab_size:
        raise UserError(
            f"{path}: the tokenizer has ids up to {tokenizer.vocab_size - 1}, the embedding {model.vocab_size} rows"
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


# ---------------------------------------------------------------- the run


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
