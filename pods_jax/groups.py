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
      loss_mask: [n, T] False for the tokens of observations, and for padding; None: there are no observations.
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
    loss_mask: np.ndarray | None = None
    drawn_logprobs: np.ndarray | None = None

    @property
    def own_mask(self) -> np.ndarray:
        """[n, T] the tokens that the policy sampled."""
        whole = np.arange(self.tokens.shape[1]) < self.lengths[:, None]
        return whole if self.loss_mask is None else self.loss_mask

    @property
    def own_lengths(self) -> np.ndarray:
        """[n] the number of tokens that the policy sampled."""
        return self.lengths if self.loss_mask is None else self.loss_mask.sum(1)

    @property
    def behaviour_logprobs(self) -> np.ndarray:
        """Log-probabilities [n, T] in the distribution that the tokens were drawn from."""
        return self.logprobs if self.drawn_logprobs is None else self.drawn_logprobs

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields of `ARRAYS` by name, without one that is None."""
        return {name: getattr(self, name) for name in ARRAYS if getattr(self, name) is not None}


ARRAYS = (
    "tokens", "logprobs", "lengths", "truncated", "rewards", "correct", "policy_versions", "loss_mask",
    "drawn_logprobs",
)  # fmt: skip
"""The names of a group's fields that are arrays with an entry for each rollout; the last two may be None."""


def joined(groups: Sequence[Group]) -> Group:
    """One group with the rollouts of a prompt's groups, in order. Its request is the first, with the total count."""
    first = groups[0]
    return Group(
        request=dataclasses.replace(first.request, count=sum(g.request.count for g in groups)),
        texts=sum((g.texts for g in groups), ()),
        reasons=sum((g.reasons for g in groups), ()),
        parts={name: np.concatenate([g.parts[name] for g in groups]) for name in first.parts},
        **{name: np.concatenate([getattr(g, name) for g in groups]) for name in first.arrays()},
    )


def subset(group: Group, rows: np.ndarray) -> Group:
    """A group with only the given rows of a group's rollouts; the count of its request is their number."""
    return Group(
        request=dataclasses.replace(group.request, count=len(rows)),
        texts=tuple(group.texts[i] for i in rows),
        reasons=tuple(group.reasons[i] for i in rows) if group.reasons else (),
        parts={name: values[rows] for name, values in group.parts.items()},
        **{name: values[rows] for name, values in group.arrays().items()},
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
    } | whole.arrays()


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
        **{name: state[name] for name in ARRAYS if name in state},
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
