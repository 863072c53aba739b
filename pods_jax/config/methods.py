"""Arguments of config files: a method, and what an ablation changes, as in `:pods,n=128,normalize=before`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from pods_jax.errors import UserError
from pods_jax.registry import nearest


@dataclasses.dataclass(frozen=True)
class Method:
    """n rollouts generated a prompt, m of them kept by a rule; further keys by "section.key"."""

    n: int
    m: int
    rule: str
    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _normalize(text: str) -> str:
    """Whose mean and deviation advantages have: "after" selection (the kept) or "before" (the group)."""
    return {"after": "kept", "before": "group"}[text]


OPTIONS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "n": ("rollout.num_generations", int, "an integer"),
    "m": ("selection.num_kept", int, "an integer"),
    "rule": ("selection.rule", str, "a selection rule"),
    "normalize": ("objective.statistics", _normalize, "before or after"),
}
"""Name -> (config key, from text, what it must be). A method that trains on all it generates has m = n = either."""


def set_method(config: ConfigDict, argument: str, methods: Mapping[str, Method]) -> None:
    """Sets the method that the argument names, the first of `methods` by default, and then its options.

    Args:
      argument: items separated by commas: a method first, if any; options, "name=value" (see `OPTIONS`).

    Raises:
      UserError: an unknown method or option, or a value that is none.
    """
    first, *rest = argument.split(",")
    if "=" in first:
        first, rest = next(iter(methods)), [first, *rest]
    if first not in methods:
        raise UserError(f"no method '{first}' ({nearest(first, methods)}); options are {', '.join(OPTIONS)}")
    method = methods[first]
    sizes = {"rollout.num_generations": method.n, "selection.num_kept": method.m, "selection.rule": method.rule}
    changes = dict(_option(item) for item in rest)
    given = [value for key, value in changes.items() if key in list(sizes)[:2]]
    if method.rule == "all" and "selection.rule" not in changes and given:
        changes |= dict.fromkeys(list(sizes)[:2], given[-1])
    config.update_from_flattened_dict(sizes | dict(method.keys) | changes)


def _option(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals or name not in OPTIONS:
        raise UserError(f"'{item}' is no option: write name=value with a name of {', '.join(OPTIONS)}")
    key, read, kind = OPTIONS[name]
    try:
        return key, read(text)
    except (ValueError, KeyError) as error:
        raise UserError(f"'{item}': {name} must be {kind}") from error


# ---------------------------------------------------------------- presets


_ALL = {"selection.rule": "all"}  # m = n, which the config sets
_DAPO = {"objective.loss_type": "dapo", "objective.epsilon_high": 0.28}
_PILOT_COMMIT = _DAPO | {
    "objective.delta": 10.0,
    "rollout.num_generations": 64,
    "allocation.name": "pilot_commit",
    "allocation.options": {"n_pilot": 16, "n_commit": 48, "p_lower": 0.125, "p_upper": 0.75, "p_solve": 1.0},
}

PRESETS: dict[str, dict[str, Any]] = {
    # Shao et al. 2024 (arXiv 2402.03300), without its KL; n = m = 16 as in the PODS paper's baseline
    "grpo": _ALL | {"rollout.num_generations": 16, "selection.num_kept": 16},
    # The PODS paper's baseline that trains on all it generates, by gradient accumulation
    "grpo_ga": _ALL | {"rollout.num_generations": 64, "selection.num_kept": 64},
    # Xu et al. 2025 (arXiv 2504.13818): Algorithm 2, statistics over the kept
    "pods": {"selection.rule": "max_variance", "rollout.num_generations": 64, "selection.num_kept": 16},
    # The same as its single-device code runs it: no clipping
    "pods_authors": {
        "selection.rule": "max_variance_authors",
        "rollout.num_generations": 64,
        "selection.num_kept": 16,
        "objective.surrogate": "reinforce",
    },
    # Yu et al. 2025 (arXiv 2503.14476), with truncated completions masked, without dynamic sampling
    "dapo": _ALL | _DAPO | {"objective.mask_truncated_completions": True},
    # The same with its dynamic sampling, 16 rollouts a prompt as in the authors' run
    "dapo_dynamic": _ALL
    | _DAPO
    | {
        "objective.mask_truncated_completions": True,
        "allocation.name": "dynamic_sampling",
        "rollout.num_generations": 16,
        "selection.num_kept": 16,
    },
    # Kim et al. 2026 (arXiv 2605.26606): their runs of 4B models, 16 pilots and 48 commits, on DAPO's loss
    "pilot_commit": _ALL | _PILOT_COMMIT | {"selection.num_kept": 64},
    # Pilot-Commit decides what is generated, PODS what of the union is trained on
    "pods_pilot_commit": _PILOT_COMMIT | {"selection.rule": "max_variance", "selection.num_kept": 16},
    # Liu et al. 2025 (arXiv 2503.20783)
    "dr_grpo": _ALL | {"objective.loss_type": "dr_grpo", "objective.scale_rewards": "none"},
    # Zheng et al. 2025 (arXiv 2507.18071), clipped as in section 5.1
    "gspo": _ALL
    | {
        "objective.importance_sampling_level": "sequence",
        "objective.epsilon": 3e-4,
        "objective.epsilon_high": 4e-4,
    },
    # MiniMax-M1 2025 (arXiv 2506.13585), with the bound of ScaleRL
    "cispo": _ALL | {"objective.surrogate": "cispo", "objective.loss_type": "dapo", "objective.epsilon_high": 5.0},
    # Ahmadian et al. 2024 (arXiv 2402.14740): of the sequence's likelihood, so tokens are summed, not averaged
    "rloo": _ALL
    | {
        "objective.advantage_estimator": "rloo",
        "objective.surrogate": "reinforce",
        "objective.loss_type": "dr_grpo",
    },
    # Hu 2025 (arXiv 2501.03262)
    "reinforce_pp": _ALL | {"objective.advantage_estimator": "reinforce_pp", "objective.loss_type": "dapo"},
    "reinforce_pp_baseline": _ALL
    | {"objective.advantage_estimator": "reinforce_pp_baseline", "objective.loss_type": "dapo"},
    # Xiong et al. 2025 (arXiv 2504.11343)
    "reinforce_rej": _ALL | {"objective.advantage_estimator": "reinforce_rej"},
    # Lin et al. 2025 (arXiv 2503.22342), half of 16 pruned
    "cppo": {
        "selection.rule": "max_abs_advantage",
        "rollout.num_generations": 16,
        "selection.num_kept": 8,
        "objective.statistics": "group",
    },
    # Shrivastava et al. 2025 (arXiv 2508.09726): the shortest 8 of 16
    "gfpo": {"selection.rule": "shortest", "rollout.num_generations": 16, "selection.num_kept": 8},
    # Xiong et al. 2025 (arXiv 2510.04996): the final selection; its rounds of sampling are an allocator's
    "reinforce_ada": {
        "selection.rule": "balanced",
        "rollout.num_generations": 32,
        "selection.num_kept": 8,
        "objective.statistics": "group",
    },
}
"""Name -> {"section.key": value}."""
