"""Groups, prompts and tables of integers as JSON-able values and a few numpy arrays, and back."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from pods_jax.records import ARRAYS, Group, Prompt, Request, joined, subset


def pack_groups(groups: Sequence[Group]) -> dict:
    """The state of groups whose token arrays are equally long; {} for none."""
    if not groups:
        return {}
    whole = joined(groups)
    return {
        "requests": [dataclasses.asdict(g.request) for g in groups],
        "sizes": [len(g.rewards) for g in groups],
        "texts": list(whole.texts),
        "reasons": list(whole.reasons),
        "parts": dict(whole.parts),
    } | {name: getattr(whole, name) for name in ARRAYS}


def unpack_groups(state: Mapping) -> list[Group]:
    """The groups that `pack_groups` packed."""
    if not state:
        return []
    requests = [Request(**{**r, "prompt": unpack_prompt(r["prompt"])}) for r in state["requests"]]
    whole = Group(
        request=requests[0],
        texts=tuple(state["texts"]),
        reasons=tuple(state["reasons"]),
        parts=state["parts"],
        **{name: state[name] for name in ARRAYS},
    )
    rows = np.split(np.arange(len(whole.rewards)), np.cumsum(state["sizes"])[:-1])
    return [dataclasses.replace(subset(whole, r), request=q) for r, q in zip(rows, requests, strict=True)]


def unpack_prompt(state: Mapping) -> Prompt:
    """The prompt of its `dataclasses.asdict`."""
    return Prompt(**{**state, "tokens": tuple(state["tokens"])})


def pack_table(table: Mapping[int, int]) -> np.ndarray:
    """[k, 2] the table's pairs, in order of their insertion."""
    return np.array(list(table.items()), np.int64).reshape(-1, 2)


def unpack_table(pairs: np.ndarray) -> dict[int, int]:
    """The table that `pack_table` packed."""
    return {int(key): int(value) for key, value in pairs}
