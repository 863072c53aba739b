"""The schema of an experiment's config: frozen, hashable dataclasses, with the meaning of each key below it.

Algorithmic sizes are global; sizes that only affect speed or memory say `_per_device`.
"""

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict, FrozenConfigDict

from pods_jax.errors import UserError
from pods_jax.registry import nearest


@dataclasses.dataclass(frozen=True)
class ModelSection:
    """The policy: a pretrained model, or random weights in the shape that the fields from hidden_size on give."""

    path: str | None = None
    """Folder of safetensors, hub id or .gguf file of a pretrained model; None: a policy from scratch."""
    dtype: str = "float32"
    """Type of the stored weights: "float32" or "bfloat16" (the latter under LoRA only)."""
    compute_dtype: str | None = None
    """Type of matrix products; norms, softmaxes and logits stay in float32. None: dtype."""
    allow_longer_context: bool = False
    """Whether prompt and completion may be longer than the model's max_position_embeddings."""
    attention: str = "chunked"
    """Implementation of attention: "chunked", "whole", "splash" (TPU), "cudnn" (NVIDIA GPU) or "auto"."""
    remat: str = "none"
    """Activations recomputed in the backward pass: "none", "full", or a JAX policy's name (`decoder.REMAT`)."""
    hidden_size: int = 96
    """Width of the residual stream."""
    intermediate_size: int = 256
    """Width of the MLP."""
    num_hidden_layers: int = 2
    """Number of layers."""
    num_attention_heads: int = 4
    """Number of query heads."""
    num_key_value_heads: int = 2
    """Number of key and value heads; divides num_attention_heads."""
    rope_theta: float = 10_000.0
    """Base of the rotary position frequencies."""


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer that LoRA can adapt, by their Hugging Face names."""


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters that are trained in place of the weights, as in PEFT."""

    rank: int = 0
    """Rank of the adapters; 0: all weights are trained."""
    alpha: float = 64.0
    """Numerator of the adapters' scale, alpha / rank, which a run reports at its start; often twice the rank."""
    target_modules: tuple[str, ...] = PROJECTIONS
    """Names of the adapted matrices, from `PROJECTIONS`."""
    quantize_base: str | None = None
    """Form of the frozen weights: "int8" or "nf4" through qwix; None: model.dtype."""
    path: str | None = None
    """Folder of an adapter in PEFT's format to start from, whose values the keys above have by default."""

    @property
    def scale(self) -> float:
        """Factor of an adapter's product A B."""
        return self.alpha / self.rank if self.rank else 0.0


@dataclasses.dataclass(frozen=True)
class WarmStartConfig:
    """Supervised steps on the data set's demonstrations, before RL, for a policy from scratch.

    The learning rate falls over the last 40 % of the steps, without which some initialisations end in a spike.
    """

    num_steps: int = 0
    """Number of supervised steps; 0: none."""
    batch_size: int = 128
    """Demonstrations in a step."""
    learning_rate: float = 2e-3
    """Peak learning rate."""
    warmup_steps: int = 30
    """Steps over which the learning rate rises."""
    seed: int = 0
    """Seed of the initial weights and the demonstrations."""


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Training problems, the problems to evaluate on, and the prompts that are made of them."""

    name: str = "addition"
    """Registered data set."""
    path: str | None = None
    """Folder or file of the data set; None: generated, or the Hugging Face hub."""
    options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Options of the data set's loader."""
    eval_name: str | None = None
    """Registered data set to evaluate on; None: the test problems of `name`."""
    eval_path: str | None = None
    """Folder or file of eval_name."""
    eval_options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Options of eval_name's loader."""
    system_prompt: str | None = None
    """System message; None: the data set's own; "": an empty one."""
    prompt_template: str = "{question}"
    """User message, with the problem in place of "{question}"."""
    system_role: str = "system"
    """Place of the system message: "system", its own; "user", before the user's message; "none", nowhere."""
    chat_template: str | None = None
    """File with a Jinja chat template; None: the model's own."""
    chat_template_kwargs: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Variables for the chat template, such as {'enable_thinking': False} for Qwen3."""


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """The verifier, and the reward: the sum of weight x part."""

    task: str | None = None
    """Verifier, by name or as "module:function"; None: the data set's own."""
    parts: FrozenConfigDict | str = "correctness"
    """Weights by part, or the name of a set of weights (`pods_jax.rewards.parts.REWARD_SETS`)."""
    functions: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """ "module:function" by part, for parts of your own with the signature of TRL's reward functions."""
    multi_objective_aggregation: str = "sum_then_normalize"
    """TRL's: "normalize_then_sum" (GDPO) normalises each part within its group before the sum that is trained on."""
    format: str = "none"
    """Format that evaluations report."""
    overlong_cache_length: int | None = None
    """Tokens before the length limit over which the part "overlong" falls; None: a fifth of the limit."""
    num_workers: int = 2
    """Processes that verify."""
    deadline_s: float = 5.0
    """Seconds for one verification; an output that takes longer counts as wrong."""


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """Prompts and rollouts of a step, and the sampler."""

    num_prompts: int = 16
    """P: prompts trained on in a step."""
    num_generations: int = 64
    """n: rollouts generated for a prompt."""
    temperature: float = 1.0
    """Divisor of the logits."""
    top_k: int = 0
    """Number of most probable tokens that can be drawn; 0: all."""
    top_p: float = 1.0
    """Probability mass of the most probable tokens that can be drawn; 1: all."""
    min_p: float = 0.0
    """Least probability of a token that can be drawn, as a share of the most probable one's; 0: all."""
    repetition_penalty: float = 1.0
    """Divisor of positive logits, and factor of negative ones, of tokens in prompt and completion; 1: none."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion, which keeps its text up to the first one (docs/sampling.md)."""
    max_prompt_length: int = 512
    """S: longest prompt in tokens; longer ones are dropped."""
    max_completion_length: int = 512
    """T: tokens after which a completion is truncated."""
    chunk_size: int = 64
    """Tokens decoded before finished rollouts leave the batch; a larger chunk compiles fewer programs."""
    attention: str = "whole"
    """Attention of tokens that are decoded: "whole", or "kernel" for TPUs, which none has run yet (docs/models.md)."""
    max_cache_bytes_per_device: int | None = None
    """Bytes of keys and values; rollouts that do not fit take turns (docs/scaling.md). None: all fit."""
    ahead: int = 0
    """Steps that generation is ahead of training: 0; or 1, which trains on rollouts of the policy before the last step
    (docs/scaling.md)."""
    engine: str = "jit"
    """Generator of completions: "jit", the sampler of this package, or "module:Class" (docs/engines.md)."""
    engine_options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Options of the engine."""


@dataclasses.dataclass(frozen=True)
class EnvironmentConfig:
    """The policy's partner in rollouts of several turns (docs/extending.md)."""

    name: str | None = None
    """Registered environment; None: a rollout has one turn."""
    options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Options of the environment."""
    max_turns: int = 4
    """Turns of the policy after which a rollout ends."""
    role: str = "user"
    """Role of observations in the chat template, such as "user" or "tool"."""
    num_threads: int = 16
    """Environments of a process that step at the same time."""


@dataclasses.dataclass(frozen=True)
class AllocationConfig:
    """The rule that spends rollouts on prompts (docs/allocation.md)."""

    name: str = "uniform"
    """Registered allocator."""
    options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Options of the allocator."""


@dataclasses.dataclass(frozen=True)
class SelectionConfig:
    """The rule that picks the rollouts of a group to train on (docs/algorithms.md)."""

    rule: str = "max_variance"
    """Registered selection rule."""
    num_kept: int = 16
    """m: rollouts of a group that are trained on."""


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """Advantages and loss, under TRL's names where it has them (docs/algorithms.md)."""

    advantage_estimator: str = "grpo"
    """Registered advantage estimator."""
    statistics: str = "kept"
    """Rollouts whose mean and deviation advantages use: the "kept", or the whole "group"."""
    surrogate: str = "clip"
    """Registered loss of a token, as a function of its ratio and advantage."""
    loss_type: str = "grpo"
    """Registered weighting of tokens in the batch's loss."""
    scale_rewards: str = "group"
    """Divisor of advantages: deviation of the "group", of all rewards of the "batch", "pooled" over the groups (around
    each one's mean), or "none"."""
    zero_variance_groups: str = "keep"
    """Groups whose advantages are all 0: "keep" counts them in the loss, their KL too; "mask" counts them in its
    denominators only; "drop" leaves them out."""
    ddof: int = 1
    """Degrees of freedom taken off in deviations."""
    advantage_epsilon: float = 1e-4
    """Addend of the divisor of advantages."""
    epsilon: float = 0.2
    """Lower clipping range of the ratio, 1 - epsilon."""
    epsilon_high: float | None = None
    """Upper clipping range of the ratio, 1 + epsilon_high; None: epsilon. (For "cispo": the largest ratio.)"""
    delta: float | None = None
    """Bound of the ratio in the unclipped branch, for negative advantages; None: none."""
    beta: float = 0.0
    """Weight of the KL to the reference; 0: no reference is kept."""
    sync_ref_model: bool = False
    """True: the reference follows the policy, as in TRL."""
    ref_model_mixup_alpha: float = 0.6
    """Weight of the policy when the reference is synchronised; the reference has the rest."""
    ref_model_sync_steps: int = 512
    """Updates between synchronisations of the reference."""
    kl_penalty: str = "loss"
    """Place of beta x KL: a term of the "loss", or taken off the "reward" (summed k1, before selection)."""
    kl_estimator: str = "k3"
    """Estimator of a token's KL in the loss: "k1", "k2" or "k3"."""
    use_bias_correction_kl: bool = True
    """True: the KL estimate in the loss is multiplied by the ratio, which makes its gradient unbiased."""
    importance_sampling_level: str = "token"
    """Unit of the ratio: a "token", a "sequence", or "sequence_token"."""
    old_logprobs: str = "recompute"
    """Denominator of the ratio: "recompute", the policy before the step's first update (stale rollouts count as
    on-policy), or "behaviour", the log-probabilities that each rollout was sampled with."""
    sapo_temperature_pos: float = 1.0
    """Temperature of the surrogate "sapo" for positive advantages."""
    sapo_temperature_neg: float = 1.05
    """Temperature of the surrogate "sapo" for the other advantages."""
    entropy_coef: float = 0.0
    """Weight of the mean entropy of tokens, which is taken off the loss."""
    top_entropy_quantile: float = 1.0
    """Share of the tokens, those of highest entropy before the step, whose surrogate counts."""
    importance_sampling_mode: str = "token_truncate"
    """Form of the weight that corrects sampler-learner differences: "token_" or "sequence_" "truncate" or "mask"."""
    importance_sampling_cap: float | None = None
    """Upper bound of that weight; None: none. Without any bound there is no weight."""
    importance_sampling_floor: float | None = None
    """Lower bound of that weight; None: none."""
    num_iterations: int = 1
    """Passes over a step's groups."""
    steps_per_generation: int = 1
    """Updates in a pass, each on an equal share of the groups."""
    mask_truncated_completions: bool = False
    """True: truncated completions are left out of the update."""

    @property
    def updates_per_step(self) -> int:
        """Number of optimizer updates in a training step."""
        return self.num_iterations * self.steps_per_generation

    @property
    def loss_beta(self) -> float:
        """Weight of the KL in the loss."""
        return self.beta if self.kl_penalty == "loss" else 0.0

    @property
    def has_other_gradients(self) -> bool:
        """True if the loss has terms besides the surrogate, so that rollouts of advantage 0 have a gradient."""
        return bool(self.loss_beta or self.entropy_coef)

    @property
    def reward_beta(self) -> float:
        """Weight of the KL in the reward."""
        return self.beta if self.kl_penalty == "reward" else 0.0


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer, its schedule in updates over the whole run, and the split of a batch to fit memory."""

    name: str = "adamw"
    """"adamw", or "muon" for the matrices of layers (the rest has AdamW), at AdamW's learning rates."""
    learning_rate: float = 1e-6
    """Peak learning rate."""
    lr_scheduler_type: str = "constant"
    """Schedule: "constant", "linear", "cosine" or "warmup_stable_decay"."""
    warmup_steps: int = 0
    """Updates over which the learning rate rises."""
    decay_fraction: float = 0.2
    """Share of the updates, at the end, in which "warmup_stable_decay" falls to 0."""
    adam_beta1: float = 0.9
    """Decay of the first moment."""
    adam_beta2: float = 0.999
    """Decay of the second moment."""
    adam_epsilon: float = 1e-8
    """Addend of Adam's divisor."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    muon_momentum: float = 0.95
    """Decay of Muon's momentum."""
    max_grad_norm: float = 1.0
    """Norm to which larger gradients are scaled down; 0: none are."""
    micro_batch_size_per_device: int | None = None
    """Rollouts a device whose activations exist at a time; None: all. Results do not depend on it."""
    logprob_chunk_size: int | None = None
    """Tokens projected onto the vocabulary at a time; None: 64 MiB of logits a device."""


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Sizes of the mesh axes; -1 fills one axis with the devices that are left."""

    data: int = -1
    """Devices that hold whole weights and different groups."""
    fsdp: int = 1
    """Devices that split the weights and hold different groups."""
    tensor: int = 1
    """Devices that split heads, MLP and vocabulary."""
    sampling: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Axis sizes of its own for sampling, such as {"tensor": 4} (data fills, the rest is 1); {}: the same layout. With
    {"devices": 2, ...}, the last two devices only sample, and the others only train."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Length of the run, and cadences; minutes are those of `wall_time_s`; 0 switches a cadence off."""

    num_steps: int = 100
    """Training steps."""
    max_minutes: float | None = None
    """Training time after which the run ends; None: no limit."""
    eval_every_steps: int = 0
    """Steps between evaluations."""
    eval_every_minutes: float = 0.0
    """Minutes between evaluations."""
    checkpoint_every_steps: int = 0
    """Steps between checkpoints."""
    checkpoint_every_minutes: float = 10.0
    """Minutes between checkpoints."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints kept."""
    keep_best: bool = True
    """True: the most accurate policy that was evaluated is kept too."""
    max_skipped_updates: int = 5
    """Updates in a row, skipped for a loss or gradient that is not finite, that end the run."""
    allow_replaced_inputs: bool = False
    """Whether a run may go on with other data or other frozen weights than those that it began with."""
    log_samples_every_steps: int = 20
    """Steps between records of completions in samples.jsonl."""


@dataclasses.dataclass(frozen=True)
class DiagnosticsConfig:
    """Measurements beside training, which they do not change; their time is no training time."""

    noise_scale_every_steps: int = 0
    """Steps between estimates of the gradient's noise scale, the first before step 1 (docs/choosing.md); 0: none."""
    noise_scale_num_prompts: int = 32
    """Training prompts of an estimate; each gets two groups of rollout.num_generations."""


@dataclasses.dataclass(frozen=True)
class LoggingConfig:
    """Places beside the workdir that a run is logged to."""

    wandb: str | None = None
    """Project at Weights & Biases that gets metrics, evaluations and samples (extra `wandb`); None: nothing is sent."""


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """A further data set to evaluate on."""

    name: str
    """Registered data set."""
    path: str | None = None
    """Folder or file of the data set."""
    options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Options of the data set's loader."""
    num_prompts: int = 256
    """Number of test problems."""
    num_samples: int = 4
    """Completions sampled for a problem."""


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Evaluations: sampled completions and a greedy one for each of num_prompts test problems, always the same ones."""

    num_prompts: int = 256
    """Number of test problems."""
    num_samples: int = 4
    """Completions sampled for a problem; 0: the greedy one only."""
    temperature: float = 1.0
    """Temperature of the samples."""
    top_k: int = 0
    """Number of most probable tokens that can be drawn; 0: all."""
    top_p: float = 1.0
    """Probability mass of the most probable tokens that can be drawn; 1: all."""
    min_p: float = 0.0
    """Least probability of a token that can be drawn, as a share of the most probable one's; 0: all."""
    repetition_penalty: float = 1.0
    """Divisor of positive logits, and factor of negative ones, of tokens in prompt and completion; 1: none."""
    stop: tuple[str, ...] | None = None
    """Strings that end a completion; None: rollout.stop."""
    greedy: bool = True
    """True: each problem has a greedy completion too."""
    max_completion_length: int | None = None
    """Tokens after which a completion is truncated; None: rollout.max_completion_length."""
    batch_size: int = 64
    """Problems whose completions are sampled together."""
    sets: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    """Further sets by the prefix of their metrics, each with keys of `EvaluationSet`: {"aime24": {"num_samples": 32}}.
    The prefix is the default name, and the numbers above are the default numbers."""

    def parsed_sets(self) -> tuple[dict[str, EvaluationSet], list[str]]:
        """The sets by prefix, and what is wrong with them, as `from_mapping`."""
        parsed = {}
        problems = []
        for prefix, given in self.sets.items():
            if not isinstance(given, Mapping | ConfigDict):
                problems.append(f"evaluation.sets.{prefix} must be a mapping, got {given!r}")
                continue
            values = {"name": prefix, "num_prompts": self.num_prompts, "num_samples": self.num_samples, **given}
            parsed[prefix], wrong = parse_section(EvaluationSet, values, f"evaluation.sets.{prefix}.")
            problems += wrong
        return parsed, problems


@dataclasses.dataclass(frozen=True)
class Config:
    """One experiment: a seed and a section for each concern."""

    seed: int = 0
    """Seed of all random numbers of a run but the warm start's."""
    model: ModelSection = ModelSection()
    lora: LoraConfig = LoraConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    data: DataConfig = DataConfig()
    reward: RewardConfig = RewardConfig()
    rollout: RolloutConfig = RolloutConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    allocation: AllocationConfig = AllocationConfig()
    selection: SelectionConfig = SelectionConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    logging: LoggingConfig = LoggingConfig()


# ---------------------------------------------------------------- dataclasses <-> mappings


def to_dict(config: Any) -> dict[str, Any]:
    """Plain, JSON-able form of a config or a section of one."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {k: to_dict(v) if dataclasses.is_dataclass(v) else _plain(v) for k, v in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, FrozenConfigDict):
        return value.as_configdict().to_dict()
    return list(value) if isinstance(value, tuple) else value


def default_config() -> ConfigDict:
    """Every key at its default, for a config file to edit. Keys that no section has cannot be added."""
    config = ConfigDict(to_dict(Config()), type_safe=False).lock()
    for section in config.values():
        for value in section.values() if isinstance(section, ConfigDict) else ():
            if isinstance(value, ConfigDict):  # options, which have keys of their own
                value.unlock()
    return config


def from_mapping(values: Mapping[str, Any] | ConfigDict) -> tuple[Config, list[str]]:
    """Frozen form of an edited ConfigDict, and what is wrong with it: unknown keys and values of a wrong type.

    The config has its default where a value is wrong, so that the other values can be checked all the same.
    """
    return parse_section(Config, values, "")


def parse_section(cls: type, values: Mapping[str, Any] | ConfigDict, prefix: str) -> tuple[Any, list[str]]:
    """Frozen form of a dataclass's values, and what is wrong with them, as `from_mapping`.

    prefix: the section's name in messages, with its dot.
    """
    problems: list[str] = []
    return _build(cls, values, prefix, problems), problems


def raise_problems(problems: list[str]) -> None:
    """One error for all problems, if there are any."""
    if problems:
        raise UserError("config: " + "; ".join(problems))


def _build(cls: type, values: Mapping[str, Any] | ConfigDict, prefix: str, problems: list[str]) -> Any:
    hints = typing.get_type_hints(cls)
    built = {}
    for name, value in values.items():
        if name not in hints:
            problems.append(f"unknown key {prefix}{name} ({nearest(name, hints)})")
        elif dataclasses.is_dataclass(hints[name]) and not isinstance(value, Mapping | ConfigDict):
            problems.append(f"{prefix}{name} is a section of keys, got {value!r}")
        elif dataclasses.is_dataclass(hints[name]):
            built[name] = _build(hints[name], value, f"{prefix}{name}.", problems)
        else:
            value, allowed = _coerce(value, hints[name])
            if type(value) in allowed and _holds_strings(value) and _is_finite(value):
                built[name] = value
            else:
                problems.append(f"{prefix}{name} must be {' or '.join(map(_kind, allowed))}, got {_shown(value)}")
    return cls(**built)


def _kind(allowed: type) -> str:
    """A type's name in a message; of a dict, how one is written on a command line."""
    names = {
        type(None): "None",
        float: "a finite float",
        FrozenConfigDict: "a dict such as \"{'key': 'value'}\"",
        tuple: "a tuple of strings such as \"('value',)\"",
    }
    return names.get(allowed, allowed.__name__)


def _holds_strings(value: Any) -> bool:
    """Whether a value that is a tuple is one of strings, as all tuples of the schema are."""
    return not isinstance(value, tuple) or all(isinstance(member, str) for member in value)


def _has_string_keys(values: Mapping[str, Any] | ConfigDict) -> bool:
    nested = (value for value in values.values() if isinstance(value, Mapping | ConfigDict))
    return all(isinstance(key, str) for key in values) and all(map(_has_string_keys, nested))


def _shown(value: Any) -> str:
    """On one line, which a ConfigDict's own form is not."""
    return repr(value.to_dict() if isinstance(value, ConfigDict) else value)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _coerce(value: Any, hint: Any) -> tuple[Any, tuple[type, ...]]:
    """The value as its field's type where that loses nothing, and the types the field allows."""
    members = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    allowed = tuple(typing.get_origin(member) or member for member in members)
    if FrozenConfigDict in allowed and isinstance(value, Mapping | ConfigDict) and _has_string_keys(value):
        value = FrozenConfigDict(dict(value))
    elif float in allowed and type(value) is int and abs(value) <= sys.float_info.max:
        value = float(value)
    elif tuple in allowed and isinstance(value, list):
        value = tuple(value)
    return value, allowed


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one mapping, "section.key" -> value."""
    found = {}
    for k, v in values.items():
        found |= flat(v, f"{prefix}{k}.") if isinstance(v, dict) else {prefix + k: v}
    return found


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config's nested values, with the defaults of keys that they lack, as an earlier version had fewer."""
    defaults = to_dict(Config())
    sections = {
        k: {**defaults[k], **v} for k, v in values.items() if isinstance(v, dict) and isinstance(defaults.get(k), dict)
    }
    return {**defaults, **values, **sections}


def changes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The flat keys of a config's nested values that are not the defaults."""
    defaults = flat(to_dict(Config()))
    return {key: value for key, value in flat(dict(values)).items() if defaults.get(key, "") != value}
