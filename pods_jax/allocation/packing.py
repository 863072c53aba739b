"""Groups, prompts and tables of integers as JSON-able values and a few numpy arrays, and back."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from pods_jax.records import Group, Prompt, Request, joined


def pack_groups(groups: Sequence[Group]) -> dict:
    """The state of groups whose rollouts are equally long arrays; {} for none."""
    if not groups:
        return {}
    all_of_them = joined(groups)
    arrays = ("tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions")
    return {
        "requests": [dataclasses.asdict(g.request) for g in groups],
        "sizes": [len(g.rewards) for g in groups],
        "texts": list(all_of_them.texts),
        "reasons": list(all_of_them.reasons),
        "parts": dict(all_of_them.parts),
    } | {name: getattr(all_of_them, name) for name in arrays}


def unpack_groups(state: Mapping) -> list[Group]:
    """The groups that `pack_groups` packed."""
    ends = np.cumsum(state.get("sizes", [])).astype(int)
    rows = [slice(end - size, end) for end, size in zip(ends, state.get("sizes", []), strict=True)]
    return [_unpack(state, request, row) for request, row in zip(state.get("requests", []), rows, strict=True)]


def _unpack(state: Mapping, request: Mapping, row: slice) -> Group:
    arrays = ("tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions")
    return Group(
        request=Request(**{**request, "prompt": unpack_prompt(request["prompt"])}),
        texts=tuple(state["texts"][row]),
        reasons=tuple(state["reasons"][row]),
        parts={name: values[row] for name, values in state["parts"].items()},
        **{name: state[name][row] for name in arrays},
    )


def unpack_prompt(state: Mapping) -> Prompt:
    """The prompt of its `dataclasses.asdict`."""
    return Prompt(**{**state, "tokens": tuple(state["tokens"])})


def pack_table(table: Mapping[int, int]) -> np.ndarray:
    """[k, 2] the table's pairs, in order of their insertion."""
    return np.array(list(table.items()), np.int64).reshape(-1, 2)


def unpack_table(pairs: np.ndarray) -> dict[int, int]:
    """The table that `pack_table` packed."""
    return {int(key): int(value) for key, value in pairs}


def subset(group: Group, rows: np.ndarray) -> Group:
    """The group of some of its rollouts; the request is told their number."""
    arrays = ("tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions")
    return Group(
        request=dataclasses.replace(group.request, count=len(rows)),
        texts=tuple(group.texts[i] for i in rows),
        reasons=tuple(group.reasons[i] for i in rows) if group.reasons else (),
        parts={name: values[rows] for name, values in group.parts.items()},
        **{name: getattr(group, name)[rows] for name in arrays},
    )
