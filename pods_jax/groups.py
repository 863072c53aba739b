"""The records on the host that pass between the parts of a step: prompts, requests, and groups of verified rollouts."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A tokenised training example.

    Attributes:
      uid: its place in the stream, which names its group and random keys, and is never used again in a run.
      index: number of its training example.
      text, gold, kind: the example's fields.
      tokens: the rendered prompt's token ids.
      epoch: number of times that the stream went through all examples before.
    """

    uid: int
    index: int
    text: str
    gold: str
    kind: str
    tokens: tuple[int, ...]
    epoch: int = 0


@dataclasses.dataclass(frozen=True)
class Request:
    """An order to generate `count` rollouts for a prompt.

    Attributes:
      stage: "plain", "pilot" or "commit", for the accounts.
      first: sample index of the first of these rollouts; the indices of a prompt's requests must not overlap.
    """

    prompt: Prompt
    count: int
    stage: str = "plain"
    first: int = 0


@dataclasses.dataclass(frozen=True)
class Group:
    """The verified rollouts of one request, or of several for the same prompt (see `joined`).

    Attributes:
      tokens, logprobs: [n, T] as the sampler returned them.
      lengths, truncated: [n] length in tokens, and whether the limit cut the completion.
      texts: the n decoded completions.
      rewards: [n] rewards from which advantages are computed; correct: [n] raw correctness, by which allocators decide.
      policy_versions: [n] version of the policy that generated each: the step after which it was taken.
      reasons: the n reasons of the verdicts (see `pods_jax.rewards.Verdict`).
      parts: [n] each, the parts of the rewards by name; NaN where a part has no value.
      drawn_logprobs: [n, T] log-probabilities in the distribution that the tokens were drawn from; None where that is
        the full one, of `logprobs`.
    """

    request: Request
    tokens: np.ndarray
    logprobs: np.ndarray
    lengths: np.ndarray
    truncated: np.ndarray
    texts: tuple[str, ...]
    rewards: np.ndarray
    correct: np.ndarray
    policy_versions: np.ndarray
    reasons: tuple[str, ...] = ()
    parts: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    drawn_logprobs: np.ndarray | None = None

    @property
    def behaviour_logprobs(self) -> np.ndarray:
        """Log-probabilities [n, T] in the distribution that the tokens were drawn from."""
        return self.logprobs if self.drawn_logprobs is None else self.drawn_logprobs


ARRAYS = ("tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions")
"""The names of a group's fields that are arrays with an entry for each rollout, in every group."""


def array_names(group: Group) -> tuple[str, ...]:
    """The names of all of a group's fields that are arrays with an entry for each rollout."""
    return ARRAYS if group.drawn_logprobs is None else (*ARRAYS, "drawn_logprobs")


def joined(groups: Sequence[Group]) -> Group:
    """One group with the rollouts of a prompt's groups, in order. Its request is the first, with the total count."""
    first = groups[0]
    return Group(
        request=dataclasses.replace(first.request, count=sum(g.request.count for g in groups)),
        texts=sum((g.texts for g in groups), ()),
        reasons=sum((g.reasons for g in groups), ()),
        parts={name: np.concatenate([g.parts[name] for g in groups]) for name in first.parts},
        **{name: np.concatenate([getattr(g, name) for g in groups]) for name in array_names(first)},
    )


def subset(group: Group, rows: np.ndarray) -> Group:
    """A group with only the given rows of a group's rollouts; the count of its request is their number."""
    return Group(
        request=dataclasses.replace(group.request, count=len(rows)),
        texts=tuple(group.texts[i] for i in rows),
        reasons=tuple(group.reasons[i] for i in rows) if group.reasons else (),
        parts={name: values[rows] for name, values in group.parts.items()},
        **{name: getattr(group, name)[rows] for name in array_names(group)},
    )


# ---------------------------------------------------------------- state


def pack_groups(groups: Sequence[Group]) -> dict:
    """The state of groups whose token arrays are equally long; {} for no groups."""
    if not groups:
        return {}
    whole = joined(groups)
    return {
        "requests": [dataclasses.asdict(g.request) for g in groups],
        "sizes": [len(g.rewards) for g in groups],
        "texts": list(whole.texts),
        "reasons": list(whole.reasons),
        "parts": dict(whole.parts),
    } | {name: getattr(whole, name) for name in array_names(whole)}


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
        drawn_logprobs=state.get("drawn_logprobs"),
        **{name: state[name] for name in ARRAYS},
    )
    rows = np.split(np.arange(len(whole.rewards)), np.cumsum(state["sizes"])[:-1])
    return [dataclasses.replace(subset(whole, r), request=q) for r, q in zip(rows, requests, strict=True)]


def unpack_prompt(state: Mapping) -> Prompt:
    """The prompt that `dataclasses.asdict` packed."""
    return Prompt(**{**state, "tokens": tuple(state["tokens"])})


def pack_table(table: Mapping[int, int]) -> np.ndarray:
    """[k, 2] the table's pairs, in the order of their insertion."""
    return np.array(list(table.items()), np.int64).reshape(-1, 2)


def unpack_table(pairs: np.ndarray) -> dict[int, int]:
    """The table that `pack_table` packed."""
    return {int(key): int(value) for key, value in pairs}
