"""An experiment: an ml_collections file becomes frozen, hashable dataclasses, checked as a whole.

Algorithmic sizes are global; sizes that only affect speed or memory say `_per_device`.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict, FrozenConfigDict

from pods_jax.errors import UserError
from pods_jax.registry import nearest


@dataclasses.dataclass(frozen=True)
class ModelSection:
    """path: a folder, hub id or .gguf; None: random weights in the shape that the other fields give.

    dtype: of the weights; compute_dtype: that they are multiplied in, with norms, softmaxes and logits in float32
    (None: dtype). remat: "none", "full" or the name of one of JAX's policies (see `decoder.REMAT`).
    """

    path: str | None = None
    dtype: str = "float32"
    compute_dtype: str | None = None
    remat: str = "none"
    hidden_size: int = 96
    intermediate_size: int = 256
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    rope_theta: float = 10_000.0


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Adapters of `rank` (0: none) trained in place of the weights; they are scaled by alpha / rank, as in PEFT.

    quantize_base: "int8" or "nf4" keep the frozen weights small, through qwix; None leaves them in model.dtype.
    """

    rank: int = 0
    alpha: float = 64.0
    target_modules: tuple[str, ...] = PROJECTIONS
    quantize_base: str | None = None

    @property
    def scale(self) -> float:
        """What an adapter's product A B is multiplied with."""
        return self.alpha / self.rank if self.rank else 0.0


@dataclasses.dataclass(frozen=True)
class WarmStartConfig:
    """Supervised steps on the data set's demonstrations, before RL; num_steps = 0 for none.

    The learning rate falls over the last 40 % of the steps, without which some initialisations end in a spike.
    """

    num_steps: int = 0
    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup_steps: int = 30
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """name: a registered data set; path: its files, where it has any; options: what its loader takes.

    eval_name, eval_path, eval_options: another data set to evaluate on; None: the test problems of the first one.
    system_prompt: None: the data set's own; "": an empty one. prompt_template: the user's message, with the problem for
    "{question}".
    """

    name: str = "addition"
    path: str | None = None
    options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    eval_name: str | None = None
    eval_path: str | None = None
    eval_options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    system_prompt: str | None = None
    prompt_template: str = "{question}"


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """reward = sum of weight x part; a verification past deadline_s counts as wrong.

    task: the verifier, by name or as "module:function"; None: the data set's own.
    parts: weights by part, or the name of a set of them (see `pods_jax.rewards.parts`).
    functions: "module:function" by part, for parts of your own with the signature of TRL's reward functions.
    format: the format that evaluations report.
    overlong_cache_length: over how many tokens before the length limit the part "overlong" falls; None: a fifth of it.
    """

    task: str | None = None
    parts: FrozenConfigDict | str = "correctness"
    functions: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    format: str = "none"
    overlong_cache_length: int | None = None
    num_workers: int = 2
    deadline_s: float = 5.0


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """P prompts a step, n generations each, and how they are sampled.

    chunk_size: tokens decoded before finished rollouts are dropped; a longer one compiles fewer programs.
    max_cache_bytes_per_device: rollouts whose keys and values do not fit take turns; None: all are decoded together.
    """

    num_prompts: int = 16
    num_generations: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_prompt_length: int = 512
    max_completion_length: int = 512
    chunk_size: int = 64
    max_cache_bytes_per_device: int | None = None


@dataclasses.dataclass(frozen=True)
class AllocationConfig:
    """name: who gets rollouts; options: what that allocator takes."""

    name: str = "uniform"
    options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)


@dataclasses.dataclass(frozen=True)
class SelectionConfig:
    """rule: which of a group's n rollouts are trained on; num_kept: m, how many."""

    rule: str = "max_variance"
    num_kept: int = 16


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """Advantages and loss, under TRL's names where it has them (see `docs/algorithms.md`).

    statistics: the advantages' means and deviations are over the "kept" rollouts or the whole "group".
    surrogate, loss_type: what a token's loss is; how tokens are averaged.
    old_logprobs: what the ratio is taken against: "recompute", the policy before the step's first update (so that
      stale rollouts count as on-policy), or "behaviour", the log-probabilities that each rollout was sampled with.
    kl_penalty: beta times the KL is a term of the "loss", or is taken off the "reward" (summed k1, before selection).
    num_iterations, steps_per_generation: passes over a step's groups, and into how many optimizer steps, each on as
      many groups, a pass is split.
    importance_sampling_cap: bound of the weight that corrects what sampler and learner disagree on; None: no weight.
    """

    advantage_estimator: str = "grpo"
    statistics: str = "kept"
    surrogate: str = "clip"
    loss_type: str = "grpo"
    scale_rewards: str = "group"
    ddof: int = 1
    advantage_epsilon: float = 1e-4
    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    beta: float = 0.0
    kl_penalty: str = "loss"
    kl_estimator: str = "k3"
    use_bias_correction_kl: bool = False
    importance_sampling_level: str = "token"
    old_logprobs: str = "recompute"
    importance_sampling_cap: float | None = None
    num_iterations: int = 1
    steps_per_generation: int = 1
    mask_truncated_completions: bool = False

    @property
    def updates_per_step(self) -> int:
        """How many optimizer steps a training step makes."""
        return self.num_iterations * self.steps_per_generation

    @property
    def loss_beta(self) -> float:
        """The KL's weight in the loss."""
        return self.beta if self.kl_penalty == "loss" else 0.0

    @property
    def reward_beta(self) -> float:
        """The KL's weight in the reward."""
        return self.beta if self.kl_penalty == "reward" else 0.0


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW, its schedule, in optimizer steps over the whole run, and how a batch is split to fit memory.

    decay_fraction: the share of the steps, at the end, in which "warmup_stable_decay" falls to 0.
    logprob_chunk_size: tokens that are projected onto the vocabulary at a time; None: 64 MiB of logits a device.
    """

    learning_rate: float = 1e-6
    lr_scheduler_type: str = "constant"
    warmup_steps: int = 0
    decay_fraction: float = 0.2
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    micro_batch_size_per_device: int | None = None
    logprob_chunk_size: int | None = None


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Sizes of the mesh axes; -1 fills.

    sampling: sizes of its own for sampling, such as {"tensor": 4} (data fills, the rest is 1); {}: the same layout.
    """

    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    sampling: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """When to stop, evaluate, save and log; minutes are those of `wall_time_s`; 0 switches a cadence off.

    keep_checkpoints: how many of the newest are kept. keep_best: the most accurate policy that was evaluated is saved
    and kept too. max_skipped_updates: so many in a row, for a loss or gradient that is not finite, stop the run.
    """

    num_steps: int = 100
    max_minutes: float | None = None
    eval_every_steps: int = 0
    eval_every_minutes: float = 0.0
    checkpoint_every_steps: int = 0
    checkpoint_every_minutes: float = 10.0
    keep_checkpoints: int = 2
    keep_best: bool = True
    max_skipped_updates: int = 5
    log_samples_every_steps: int = 20


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """A data set to evaluate on: a registered name, its files and options as in `DataConfig`, and how much of it."""

    name: str
    path: str | None = None
    options: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)
    num_prompts: int = 256
    num_samples: int = 4


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """num_samples at `temperature` and one greedy completion for each of the first num_prompts test problems.

    top_k, top_p: of the samples; 0 and 1 switch them off.
    sets: more sets than that of the data section, by the prefix of their metrics: keys of `EvaluationSet`. What a set
      leaves out is its prefix for the name, and the numbers given here: {"aime24": {"num_samples": 32}}.
    """

    num_prompts: int = 256
    num_samples: int = 4
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    batch_size: int = 64
    sets: FrozenConfigDict = dataclasses.field(default_factory=FrozenConfigDict)

    def parsed_sets(self) -> tuple[dict[str, EvaluationSet], list[str]]:
        """The sets by prefix, and what is wrong with them, as `from_mapping`."""
        parsed, problems = {}, []
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
    """One experiment."""

    seed: int = 0
    model: ModelSection = ModelSection()
    lora: LoraConfig = LoraConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    data: DataConfig = DataConfig()
    reward: RewardConfig = RewardConfig()
    rollout: RolloutConfig = RolloutConfig()
    allocation: AllocationConfig = AllocationConfig()
    selection: SelectionConfig = SelectionConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()


# ---------------------------------------------------------------- dataclasses <-> mappings


def to_dict(config: Any) -> dict[str, Any]:
    """The plain, JSON-able form of a config or a section of one."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {k: to_dict(v) if dataclasses.is_dataclass(v) else _plain(v) for k, v in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, FrozenConfigDict):
        return value.as_configdict().to_dict()
    return list(value) if isinstance(value, tuple) else value


def default_config() -> ConfigDict:
    """Every key at its default, for a config file to edit."""
    return ConfigDict(to_dict(Config()), type_safe=False)


def from_mapping(values: Mapping[str, Any] | ConfigDict) -> tuple[Config, list[str]]:
    """The frozen form of an edited ConfigDict, and what is wrong with it: unknown keys and values of a wrong type.

    The config has its default where a value is wrong, so that the other values can be checked all the same.
    """
    return parse_section(Config, values, "")


def parse_section(cls: type, values: Mapping[str, Any] | ConfigDict, prefix: str) -> tuple[Any, list[str]]:
    """The frozen form of a dataclass's values, and what is wrong with them, as `from_mapping`.

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
        elif dataclasses.is_dataclass(hints[name]):
            built[name] = _build(hints[name], value, f"{prefix}{name}.", problems)
        else:
            value, allowed = _coerce(value, hints[name])
            if type(value) in allowed:
                built[name] = value
            else:
                problems.append(f"{prefix}{name} must be {' or '.join(map(_kind, allowed))}, got {value!r}")
    return cls(**built)


def _kind(allowed: type) -> str:
    """A type's name in a message; of a dict, how one is written on a command line."""
    names = {type(None): "None", FrozenConfigDict: "a dict such as \"{'key': 'value'}\""}
    return names.get(allowed, allowed.__name__)


def _coerce(value: Any, hint: Any) -> tuple[Any, tuple[type, ...]]:
    """The value as its field's type where that loses nothing, and the types the field allows."""
    allowed = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    if FrozenConfigDict in allowed and isinstance(value, Mapping | ConfigDict):
        value = FrozenConfigDict(dict(value))
    elif float in allowed and type(value) is int:
        value = float(value)
    elif typing.get_origin(hint) is tuple:
        value, allowed = tuple(value) if isinstance(value, list) else value, (tuple,)
    return value, allowed


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one mapping, "section.key" -> value."""
    found = {}
    for k, v in values.items():
        found |= flat(v, f"{prefix}{k}.") if isinstance(v, dict) else {prefix + k: v}
    return found
