"""Notices: lines about what a user would rather know than find out, such as a reward that never varies."""

from collections import deque
from collections.abc import Mapping

import numpy as np

from pods_jax.config.schema import Config

WINDOW = 5
"""Steps that a notice is judged over."""
_NEARLY_ALL = 0.95


_RESHAPING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Options of the draw, and the values that leave the policy's distribution as it is."""


def standing(config: Config) -> list[str]:
    """The notices that hold from a run's start to its end."""
    r = config.rollout
    o = config.objective
    given = [f"rollout.{key} = {getattr(r, key)}" for key, off in _RESHAPING.items() if getattr(r, key) != off]
    if not given:
        return []
    bounds = (o.importance_sampling_cap, o.importance_sampling_floor)
    corrected = o.old_logprobs == "behaviour" or any(bound is not None for bound in bounds)
    effect = (
        "takes account of it in its importance ratio"
        if corrected
        else "takes no account of it (with objective.importance_sampling_cap = 2.0 it does)"
    )
    return [
        f"{', '.join(given)}: rollouts are drawn from a reshaped policy, of which the loss {effect}; "
        "sampling/kept_mass/mean is the share of the policy that can be drawn"
    ]


class Notices:
    """Says each notice when it begins to hold, over the last steps, and again when it has ceased and comes back."""

    def __init__(self, config: Config):
        self._config = config
        self._recent: deque[Mapping[str, float]] = deque(maxlen=WINDOW)
        self._holding: set[str] = set()

    def of(self, metrics: Mapping[str, float]) -> list[str]:
        """The lines to print after a step with these metrics."""
        self._recent.append(metrics)
        if len(self._recent) < WINDOW:
            return []
        found = self._found()
        new = [line for name, line in found.items() if name not in self._holding]
        self._holding = set(found)
        return new

    def _found(self) -> dict[str, str]:
        """The notices that hold, by name."""
        limit = self._config.rollout.max_completion_length
        lines = {}
        if (cut := self._mean("completions/clipped_ratio")) >= _NEARLY_ALL:
            lines["truncated"] = (
                f"{cut:.0%} of the completions are cut at rollout.max_completion_length = {limit} tokens: raise it, or "
                "look in samples.jsonl for an end-of-sequence token that does not come"
            )
        if self._mean("frac_reward_zero_std") >= 1:
            learnt = "" if self._mean("grad_norm") else ", so that nothing was learnt"  # not all estimators need groups
            lines["equal rewards"] = (
                f"in {WINDOW} steps no prompt's rewards differed{learnt} (mean reward {self._mean('reward'):.3g}): "
                "see samples.jsonl"
            )
        return lines

    def _mean(self, name: str) -> float:
        """Over the last steps; 0 if none has a number."""
        values = np.array([m[name] for m in self._recent if m.get(name) is not None], float)
        return float(np.nanmean(values)) if values.size and not np.isnan(values).all() else 0.0
