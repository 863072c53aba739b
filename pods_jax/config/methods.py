"""Published methods as config keys, and the arguments by which a config file offers them (`:pods,n=128`)."""

from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from pods_jax.errors import UserError
from pods_jax.registry import nearest

Keys = Mapping[str, Any]


def sizes(n: int, m: int) -> Keys:
    """The keys of n rollouts generated for a prompt and m of them trained on."""
    return {"rollout.num_generations": n, "selection.num_kept": m}


_ALL = {"selection.rule": "all"}  # for n = m
_DAPO_LOSS = {
    "objective.loss_type": "dapo",
    "objective.epsilon_high": 0.28,
    "objective.mask_truncated_completions": True,
}
_PILOT_COMMIT = {
    "allocation.name": "pilot_commit",
    "allocation.options": {"n_pilot": 16, "n_commit": 48, "p_lower": 0.125, "p_upper": 0.75, "p_solve": 1.0},
}

METHODS: Mapping[str, Keys] = {
    # Shao et al. 2024 (arXiv 2402.03300), without its KL; n = m = 16 as in the PODS paper's baseline
    "grpo": _ALL | sizes(16, 16),
    # The PODS paper's baseline that trains on all it generates, by gradient accumulation
    "grpo_ga": _ALL | sizes(64, 64),
    # Xu et al. 2025 (arXiv 2504.13818): Algorithm 2, statistics over the kept
    "pods": {"selection.rule": "max_variance"} | sizes(64, 16),
    # The same as its single-device code runs it: no clipping
    "pods_authors": {"selection.rule": "max_variance_authors", "objective.surrogate": "reinforce"} | sizes(64, 16),
    # The other selection rules of Xu et al. 2025
    "random": {"selection.rule": "random"} | sizes(64, 16),
    "max_reward": {"selection.rule": "max_reward"} | sizes(64, 16),
    "percentile": {"selection.rule": "percentile"} | sizes(64, 16),
    # Yu et al. 2025 (arXiv 2503.14476): dynamic sampling, clip-higher, token mean; n = 16 as in the authors' run
    "dapo": _ALL | _DAPO_LOSS | {"allocation.name": "dynamic_sampling"} | sizes(16, 16),
    # The same without dynamic sampling
    "dapo_loss": _ALL | _DAPO_LOSS | sizes(16, 16),
    # Kim et al. 2026 (arXiv 2605.26606): 16 pilots and 48 commits as for its 4B models, which train on DAPO's loss
    "pilot_commit": _ALL | _PILOT_COMMIT | sizes(64, 64),
    # Pilot-Commit decides what is generated, PODS what of the union is trained on
    "pilot_commit_pods": {"selection.rule": "max_variance"} | _PILOT_COMMIT | sizes(64, 16),
    # Liu et al. 2025 (arXiv 2503.20783)
    "dr_grpo": _ALL | {"objective.loss_type": "dr_grpo", "objective.scale_rewards": "none"},
    # Zheng et al. 2025 (arXiv 2507.18071), clipped as in section 5.1
    "gspo": _ALL
    | {"objective.importance_sampling_level": "sequence", "objective.epsilon": 3e-4, "objective.epsilon_high": 4e-4},
    # MiniMax-M1 2025 (arXiv 2506.13585), with the bound of ScaleRL
    "cispo": _ALL | {"objective.surrogate": "cispo", "objective.loss_type": "dapo", "objective.epsilon_high": 5.0},
    # Ahmadian et al. 2024 (arXiv 2402.14740): of the sequence's likelihood, so tokens are summed, not averaged
    "rloo": _ALL
    | {"objective.advantage_estimator": "rloo", "objective.surrogate": "reinforce", "objective.loss_type": "dr_grpo"},
    # Hu 2025 (arXiv 2501.03262)
    "reinforce_pp": _ALL | {"objective.advantage_estimator": "reinforce_pp", "objective.loss_type": "dapo"},
    "reinforce_pp_baseline": _ALL
    | {"objective.advantage_estimator": "reinforce_pp_baseline", "objective.loss_type": "dapo"},
    # Xiong et al. 2025 (arXiv 2504.11343)
    "reinforce_rej": _ALL | {"objective.advantage_estimator": "reinforce_rej"},
    # Lin et al. 2025 (arXiv 2503.22342), half of 16 pruned
    "cppo": {"selection.rule": "max_abs_advantage", "objective.statistics": "group"} | sizes(16, 8),
    # Shrivastava et al. 2025 (arXiv 2508.09726): the shortest 8 of 16
    "gfpo": {"selection.rule": "shortest"} | sizes(16, 8),
    # Xiong et al. 2025 (arXiv 2510.04996): the final selection; its rounds of sampling are an allocator's
    "reinforce_ada": {"selection.rule": "balanced", "objective.statistics": "group"} | sizes(32, 8),
}
"""Name -> keys of the config, for a config file: `config.update_from_flattened_dict(METHODS["dr_grpo"])`.

A method has no learning rate and no sampling; those are the experiment's. Keys that it does not name stay as they are.
"""


# ---------------------------------------------------------------- arguments of config files


def _normalize(text: str) -> str:
    return {"after": "kept", "before": "group"}[text]


OPTIONS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "n": ("rollout.num_generations", int, "an integer"),
    "m": ("selection.num_kept", int, "an integer"),
    "rule": ("selection.rule", str, "a selection rule"),
    "normalize": ("objective.statistics", _normalize, "before or after"),
}
"""Name -> (config key, reader, what the value must be). `normalize`: advantages before or after selection."""


def set_method(config: ConfigDict, argument: str, offered: Mapping[str, Keys]) -> None:
    """Sets the method that the argument names, the first of `offered` by default, and then its options.

    A method of rule "all" trains on all it generates: where one of n and m is given, it is both.

    Args:
      argument: items separated by commas: a method first, if any; options, "name=value" (see `OPTIONS`).
      offered: names in `METHODS`, each with the keys that differ in this experiment.

    Raises:
      UserError: an unknown method or option, or a value that is none.
    """
    first, *rest = argument.split(",")
    if "=" in first:
        rest = [first, *rest]
        first = next(iter(offered))
    if first not in offered:
        raise UserError(f"no method '{first}' ({nearest(first, offered)}); options are {', '.join(OPTIONS)}")
    keys = {**METHODS[first], **offered[first]}
    changes = dict(_option(item) for item in rest)
    given = {value for key, value in changes.items() if key in sizes(0, 0)}
    if len(given) == 1 and {**keys, **changes}["selection.rule"] == "all":
        changes |= sizes(*given, *given)
    config.update_from_flattened_dict(keys | changes)


def _option(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals or name not in OPTIONS:
        raise UserError(f"'{item}' is no option: write name=value with a name of {', '.join(OPTIONS)}")
    key, read, kind = OPTIONS[name]
    try:
        return key, read(text)
    except (ValueError, KeyError) as error:
        raise UserError(f"'{item}': {name} must be {kind}") from error
