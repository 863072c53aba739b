"""What tells configs apart, in words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_SHORT = {"rollout.num_generations": "n", "selection.num_kept": "m", "optimizer.learning_rate": "lr"}


def differences(configs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Of each flat config "key = value" for the keys in which two of them differ.

    A key is written without its section where no other section has one of that name.
    """
    keys = sorted(set().union(*configs))
    names = Counter(map(_bare, keys))
    differing = [k for k in keys if any(c.get(k) != configs[0].get(k) for c in configs)]
    shown = {k: _SHORT.get(k) or (k if names[_bare(k)] > 1 else _bare(k)) for k in differing}
    return [[f"{shown[k]} = {config.get(k)}" for k in differing] for config in configs]


def _bare(key: str) -> str:
    return key.rpartition(".")[2]
