"""Checks of a config's values against their ranges and each other; all violations are reported at once."""

import functools
import math
from collections.abc import Iterable, Iterator

from pods_jax.allocation import ALLOCATORS, option_problems
from pods_jax.config.schema import PROJECTIONS, Config, RewardConfig, raise_problems
from pods_jax.data import DATASETS
from pods_jax.data.chat import SYSTEM_ROLES
from pods_jax.environments import ENVIRONMENTS
from pods_jax.environments import option_problems as environment_problems
from pods_jax.errors import UserError
from pods_jax.learner.optimizer import OPTIMIZERS
from pods_jax.models.attention import NAMES as ATTENTION
from pods_jax.models.decoder import REMAT
from pods_jax.objective import ADVANTAGES, CORRECTIONS, LEVELS, LOSSES, SURROGATES
from pods_jax.registry import nearest
from pods_jax.rewards import FORMATS, VERIFIERS
from pods_jax.rewards.callables import load_function
from pods_jax.rewards.parts import PARTS, REWARD_SETS
from pods_jax.rollout.attention_kernel import NAMES as DECODING_ATTENTION
from pods_jax.rollout.engine import engine_problems
from pods_jax.selection import RULES
from pods_jax.selection.rules import PER_ROLLOUT, needed

_POSITIVE = (
    "rollout.num_prompts", "rollout.num_generations", "rollout.max_prompt_length", "rollout.max_completion_length",
    "rollout.temperature", "rollout.chunk_size", "selection.num_kept", "objective.num_iterations",
    "objective.steps_per_generation", "objective.ref_model_sync_steps",
    "optimizer.learning_rate", "training.num_steps", "training.keep_checkpoints",
    "training.max_skipped_updates", "evaluation.num_prompts", "evaluation.batch_size",
    "reward.deadline_s", "reward.num_workers", "model.hidden_size", "model.intermediate_size",
    "model.num_hidden_layers", "model.num_attention_heads", "model.num_key_value_heads", "warm_start.batch_size",
    "warm_start.learning_rate", "lora.alpha", "objective.sapo_temperature_pos", "objective.sapo_temperature_neg",
    "environment.max_turns", "environment.num_threads",
    "rollout.repetition_penalty", "evaluation.repetition_penalty",
)  # fmt: skip
_NOT_NEGATIVE = (
    "rollout.top_k", "objective.beta", "objective.epsilon", "objective.epsilon_high", "objective.ddof",
    "objective.advantage_epsilon", "optimizer.adam_epsilon", "optimizer.warmup_steps", "optimizer.weight_decay",
    "optimizer.max_grad_norm", "training.eval_every_steps", "training.checkpoint_every_steps",
    "training.checkpoint_every_minutes", "training.log_samples_every_steps", "evaluation.num_samples",
    "evaluation.temperature", "evaluation.top_k", "training.eval_every_minutes", "warm_start.num_steps", "lora.rank",
    "seed", "warm_start.seed", "objective.entropy_coef", "diagnostics.noise_scale_every_steps",
)  # fmt: skip
_POSITIVE_OR_NONE = (
    "rollout.max_cache_bytes_per_device", "objective.importance_sampling_cap", "objective.delta",
    "objective.importance_sampling_floor",
    "optimizer.logprob_chunk_size", "training.max_minutes", "evaluation.max_completion_length",
)  # fmt: skip


MIN_TEMPERATURE = 1e-4
"""Logits of 100, divided by it, are a million: differences of 0.06 between them are what float32 resolves."""


def violations(config: Config) -> list[str]:
    """Every violation, in words; needs no device."""
    checks = (
        _ranges, _names, _adapters, _rule, _objective, _rewards, _environment, _evaluation_sets, _allocation,
        engine_problems, _sizes, _logging,
    )  # fmt: skip
    return [problem for check in checks for problem in check(config)]


def validate_on_devices(config: Config, data_parallel: int) -> None:
    """The checks that need the mesh: every device gets whole groups. data_parallel: devices that split the groups."""
    c = config.rollout
    m = config.selection.num_kept
    problems = []
    if c.num_prompts % data_parallel:
        problems.append(
            f"rollout.num_prompts = {c.num_prompts} must be a multiple of the {data_parallel} data-parallel devices"
        )
    micro = config.optimizer.micro_batch_size_per_device
    updates = config.objective.steps_per_generation
    prompts = c.num_prompts // updates
    named = micro or f"None (m = {m})"
    if (micro or updates > 1) and (prompts * m) % ((micro or m) * data_parallel):
        problems.append(
            f"optimizer.micro_batch_size_per_device = {named} x {data_parallel} devices must divide the "
            f"{prompts} x {m} rollouts of an update"
        )
    raise_problems(problems)


def _value(config: Config, key: str):
    return functools.reduce(getattr, key.split("."), config)


def _ranges(config: Config) -> Iterator[str]:
    for key in _POSITIVE:
        if not _value(config, key) > 0:
            yield f"{key} must be positive, got {_value(config, key)}"
    for key in _NOT_NEGATIVE:
        if _value(config, key) is not None and not _value(config, key) >= 0:
            yield f"{key} must not be negative, got {_value(config, key)}"
    for key in _POSITIVE_OR_NONE:
        if _value(config, key) is not None and not _value(config, key) > 0:
            yield f"{key} must be positive or None, got {_value(config, key)}"
    for key in ("optimizer.adam_beta1", "optimizer.adam_beta2", "optimizer.muon_momentum"):
        if not 0 <= _value(config, key) < 1:
            yield f"{key} must lie in [0, 1), got {_value(config, key)}"
    for key in ("seed", "warm_start.seed"):
        if _value(config, key) >= 2**32:
            yield f"{key} must be below 2^32 (random keys have 32 bits), got {_value(config, key)}"
    for key in ("rollout.temperature", "evaluation.temperature"):
        if 0 < _value(config, key) < MIN_TEMPERATURE:
            yield f"{key} = {_value(config, key)} is below {MIN_TEMPERATURE}, by which float32 logits cannot be divided"
    yield from _draws(config)
    if config.diagnostics.noise_scale_num_prompts < 2:
        yield (
            "diagnostics.noise_scale_num_prompts must be at least 2, as prompts are compared, got "
            f"{config.diagnostics.noise_scale_num_prompts}"
        )
    if not 0 <= config.optimizer.decay_fraction <= 1:
        yield f"optimizer.decay_fraction must lie in [0, 1], got {config.optimizer.decay_fraction}"
    cache = config.reward.overlong_cache_length
    limit = config.rollout.max_completion_length
    if cache is not None and not 1 <= cache <= limit:
        yield f"reward.overlong_cache_length must lie in 1..{limit} or be None, got {cache}"


def _logging(config: Config) -> Iterator[str]:
    if config.logging.wandb == "":
        yield "logging.wandb must name a project or be None"


def _draws(config: Config) -> Iterator[str]:
    """Options of the draw that no sampler can follow, or that leave a group nothing to differ in."""
    for section in ("rollout", "evaluation"):
        values = getattr(config, section)
        if not 0 < values.top_p <= 1:
            yield f"{section}.top_p must lie in (0, 1], got {values.top_p}"
        if not 0 <= values.min_p <= 1:
            yield f"{section}.min_p must lie in [0, 1], got {values.min_p}"
        for string in values.stop or ():
            if not string or "\N{REPLACEMENT CHARACTER}" in string:
                yield f"{section}.stop must hold strings that text can contain, got {string!r}"
    for key, only in (("top_k", 1), ("min_p", 1.0)):
        if getattr(config.rollout, key) == only:
            yield f"rollout.{key} = {only} draws the most probable token, so that all rollouts of a prompt are the same"


def _names(config: Config) -> Iterator[str]:
    """Values that are not among the choices of their keys."""
    choices: dict[str, Iterable[str]] = {
        "data.name": DATASETS,
        "reward.format": FORMATS,
        "reward.multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
        "allocation.name": ALLOCATORS,
        "environment.name": ENVIRONMENTS,
        "selection.rule": RULES,
        "objective.advantage_estimator": ADVANTAGES,
        "objective.statistics": ("kept", "group"),
        "objective.surrogate": SURROGATES,
        "objective.loss_type": LOSSES,
        "objective.scale_rewards": ("group", "batch", "pooled", "none"),
        "objective.zero_variance_groups": ("keep", "mask", "drop"),
        "objective.importance_sampling_mode": CORRECTIONS,
        "objective.kl_penalty": ("loss", "reward"),
        "objective.kl_estimator": ("k1", "k2", "k3"),
        "objective.importance_sampling_level": LEVELS,
        "objective.old_logprobs": ("recompute", "behaviour"),
        "optimizer.name": OPTIMIZERS,
        "optimizer.lr_scheduler_type": ("constant", "linear", "cosine", "warmup_stable_decay"),
        "model.dtype": ("float32", "bfloat16"),
        "model.compute_dtype": ("float32", "bfloat16"),
        "model.attention": ATTENTION,
        "rollout.attention": DECODING_ATTENTION,
        "model.remat": REMAT,
        "data.system_role": SYSTEM_ROLES,
    }
    for key, known in choices.items():
        if _value(config, key) not in (None, *known):
            yield f"{key} = '{_value(config, key)}' is unknown ({nearest(_value(config, key), known)})"


def _adapters(config: Config) -> Iterator[str]:
    """Options of adapters without adapters, and adapters of nothing."""
    if config.model.dtype == "bfloat16" and not config.lora.rank:
        yield "model.dtype = 'bfloat16' would round small updates of the weights away: use 'float32', or lora.rank > 0"
    if config.lora.quantize_base not in (None, "int8", "nf4"):
        yield f"lora.quantize_base = '{config.lora.quantize_base}' is unknown (known: int8, nf4, None)"
    if config.lora.path is not None and not config.lora.rank:
        yield "lora.path needs lora.rank, the rank of the adapter there"
    if config.lora.quantize_base and not config.lora.rank:
        yield "lora.quantize_base needs adapters to train: lora.rank is 0"
    if config.lora.rank and not config.lora.target_modules:
        yield "lora.target_modules is empty: adapters need a matrix to adapt"
    for module in config.lora.target_modules:
        if module not in PROJECTIONS:
            yield f"lora.target_modules: '{module}' is unknown ({nearest(module, PROJECTIONS)})"


def _rule(config: Config) -> Iterator[str]:
    """A selection rule that asks for what rules are not given."""
    rule = config.selection.rule
    if rule in RULES and (strange := set(needed(rule)) - set(PER_ROLLOUT)):
        yield f"selection rule '{rule}' has a parameter '{min(strange)}'; rules are given {' and '.join(PER_ROLLOUT)}"


def _objective(config: Config) -> Iterator[str]:
    """Options of the objective that do not fit each other."""
    o = config.objective
    if o.surrogate == "cispo" and not (o.epsilon_high or 0.0) >= 1:
        yield (
            "objective.surrogate = 'cispo' needs objective.epsilon_high, the largest ratio, of at least 1 (5.0 in "
            f"ScaleRL), got {o.epsilon_high}"
        )
    upper = 1 + (o.epsilon if o.epsilon_high is None else o.epsilon_high)
    if o.surrogate == "clip" and o.delta is not None and o.delta <= upper:
        yield f"objective.delta = {o.delta} must be above 1 + epsilon_high = {upper}: it bounds the unclipped ratio"
    if o.surrogate != "clip" and o.delta is not None:
        yield f"objective.delta has no part in objective.surrogate = '{o.surrogate}': leave it None"
    if o.kl_estimator == "k2" and o.use_bias_correction_kl and o.loss_beta:
        yield (
            "objective.kl_estimator = 'k2' has no bias correction (its own gradient is that of the KL): set "
            "objective.use_bias_correction_kl = False"
        )
    if o.advantage_estimator != "grpo" and o.scale_rewards != "group":
        yield (
            f"objective.scale_rewards = '{o.scale_rewards}' has no part in objective.advantage_estimator = "
            f"'{o.advantage_estimator}': leave it 'group'"
        )
    bounds = [name for name in ("importance_sampling_cap", "importance_sampling_floor") if getattr(o, name) is not None]
    if o.old_logprobs == "behaviour" and bounds:
        yield f"objective.{bounds[0]} has nothing to correct with objective.old_logprobs = 'behaviour'"
    low = o.importance_sampling_floor
    high = o.importance_sampling_cap
    if low is not None and high is not None and low > high:
        yield f"objective.importance_sampling_floor = {low} is above objective.importance_sampling_cap = {high}"
    if not 0 < o.ref_model_mixup_alpha <= 1:
        yield f"objective.ref_model_mixup_alpha must lie in (0, 1], got {o.ref_model_mixup_alpha}"
    if o.sync_ref_model and not o.beta:
        yield "objective.sync_ref_model has no reference to synchronise: objective.beta is 0"
    if o.sync_ref_model and config.lora.rank:
        yield "objective.sync_ref_model has no weights to change: under LoRA the reference is the frozen base"
    if not 0 < o.top_entropy_quantile <= 1:
        yield f"objective.top_entropy_quantile must lie in (0, 1], got {o.top_entropy_quantile}"


def _rewards(config: Config) -> Iterator[str]:
    r = config.reward
    d = config.data
    if d.eval_name is not None and d.eval_name not in DATASETS:
        yield f"data.eval_name = '{d.eval_name}' is unknown ({nearest(d.eval_name, DATASETS)})"
    if "{question}" not in d.prompt_template:
        yield f"data.prompt_template = '{d.prompt_template}' has no '{{question}}' in it"
    task = r.task or "exact"
    functions = list(r.functions.values())
    if ":" in task:
        functions.append(task)
    elif task not in VERIFIERS:
        yield f"reward.task = '{task}' is unknown ({nearest(task, VERIFIERS)})"
    if r.multi_objective_aggregation == "normalize_then_sum" and config.objective.reward_beta:
        yield "reward.multi_objective_aggregation = 'normalize_then_sum' has no place for a KL penalty in the reward"
    for name in functions:
        try:
            load_function(name)
        except UserError as error:
            yield str(error)
    yield from _parts(r)


def _environment(config: Config) -> Iterator[str]:
    e = config.environment
    if e.name in ENVIRONMENTS:
        yield from environment_problems(e.name, dict(e.options))
    parts = config.reward.parts
    if e.name is None and not isinstance(parts, str) and "environment" in parts:
        yield "reward.parts: 'environment' is what an environment gives: set environment.name"


RESERVED = ("time", "rollouts", "tokens")
"""Beginnings of names, before a slash, that metrics of an evaluation have beside those of its sets."""


def _evaluation_sets(config: Config) -> Iterator[str]:
    e = config.evaluation
    sets, problems = e.parsed_sets()
    if not e.greedy and 0 in (e.num_samples, *(chosen.num_samples for chosen in sets.values())):
        yield "evaluation.greedy = False leaves nothing to evaluate where num_samples is 0"
    yield from problems
    for prefix, chosen in sets.items():
        if prefix in ("", *RESERVED):
            yield f"evaluation.sets: '{prefix}' cannot be a prefix, as {', '.join(RESERVED)} begin other numbers' names"
        if chosen.name not in DATASETS:
            yield f"evaluation.sets.{prefix}: data set '{chosen.name}' is unknown ({nearest(chosen.name, DATASETS)})"
        if chosen.num_prompts < 1 or chosen.num_samples < 0:
            yield f"evaluation.sets.{prefix}: num_prompts must be positive, and num_samples not negative"


def _parts(reward: RewardConfig) -> Iterator[str]:
    if isinstance(reward.parts, str) and reward.parts not in REWARD_SETS:
        yield f"reward.parts = '{reward.parts}' is unknown ({nearest(reward.parts, REWARD_SETS)})"
        return
    weights = REWARD_SETS[reward.parts] if isinstance(reward.parts, str) else dict(reward.parts)
    if not weights:
        yield "reward.parts is empty: a reward needs a part, such as {'correctness': 1.0}"
    known = {*PARTS, *FORMATS, *reward.functions}
    for part, weight in weights.items():
        if part not in known:
            yield f"reward.parts: '{part}' is unknown ({nearest(part, known)})"
        if type(weight) not in (int, float) or not math.isfinite(weight):
            yield f"reward.parts: the weight of '{part}' must be a finite number, got {weight!r}"


def _allocation(config: Config) -> Iterator[str]:
    if config.allocation.name in ALLOCATORS:
        yield from option_problems(config)
        yield from _ahead(config)


def _ahead(config: Config) -> Iterator[str]:
    """Generation ahead of training asks for a step's rollouts before the rewards of the one before are known."""
    if config.rollout.ahead not in (0, 1):
        yield f"rollout.ahead must be 0 or 1, got {config.rollout.ahead}"
    if config.rollout.ahead and not _asks_ahead(config.allocation.name):
        fit = ", ".join(sorted(filter(_asks_ahead, ALLOCATORS)))
        yield (
            f"rollout.ahead = 1 does not go with allocation.name = '{config.allocation.name}', which asks by rewards "
            f"of the step before (works with: {fit})"
        )


def _asks_ahead(name: str) -> bool:
    return getattr(ALLOCATORS[name], "asks_ahead", False)


def _sizes(config: Config) -> Iterator[str]:
    n = config.rollout.num_generations
    m = config.selection.num_kept
    if m > n:
        yield f"selection.num_kept (m = {m}) exceeds rollout.num_generations (n = {n})"
    if config.selection.rule == "all" and m < n:
        yield f"selection.rule 'all' keeps all rollouts: selection.num_kept = {m} must be rollout.num_generations = {n}"
    if m < 2:
        yield f"selection.num_kept (m = {m}) must be at least 2: a group of one has no advantage"
    prompts = config.rollout.num_prompts
    updates = config.objective.steps_per_generation
    if updates > 0 and prompts % updates:
        yield f"objective.steps_per_generation = {updates} must divide rollout.num_prompts = {prompts}"
    micro = config.optimizer.micro_batch_size_per_device
    if micro is not None and not (_divides(m, micro) or _divides(micro, m)):
        yield f"optimizer.micro_batch_size_per_device = {micro} must be a multiple or divisor of m = {m}"
    mesh = config.mesh
    sampling = dict(mesh.sampling)
    apart = sampling.pop("devices", 0)
    for name, sizes in (("mesh", [mesh.data, mesh.fsdp, mesh.tensor]), ("mesh.sampling", list(sampling.values()))):
        if any(type(s) is not int or (s != -1 and s < 1) for s in sizes) or sizes.count(-1) > 1:
            yield f"{name} sizes must be positive, with at most one -1, got {sizes}"
    if type(apart) is not int or apart < 0:
        yield f"mesh.sampling.devices must be a number of devices, got {apart!r}"
    for axis in sampling.keys() - {"data", "fsdp", "tensor"}:
        yield f"mesh.sampling has no axis '{axis}' (known: data, fsdp, tensor; and devices)"
    if sampling and config.lora.quantize_base:
        yield "mesh.sampling cannot lay out a quantised base anew: leave it {} with lora.quantize_base"
    model = config.model
    if model.path is None and not _divides(2 * model.num_attention_heads, model.hidden_size):
        yield "model.hidden_size must be a multiple of 2 x model.num_attention_heads"
    if model.path is None and not _divides(model.num_key_value_heads, model.num_attention_heads):
        yield "model.num_attention_heads must be a multiple of model.num_key_value_heads"


def _divides(part: int, whole: int) -> bool:
    return part > 0 and whole % part == 0
