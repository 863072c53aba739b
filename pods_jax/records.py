"""The host-side records that pass between the rooms: prompts, requests, and groups of verified rollouts."""

import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A tokenised training example.

    Attributes:
      uid: its place in the stream; names the group and its random keys, and is never reused in a run.
      index: which training example it is.
      text, gold, kind: the example's fields.
      tokens: the rendered prompt's token ids.
    """

    uid: int
    index: int
    text: str
    gold: str
    kind: str
    tokens: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Request:
    """Generate `count` rollouts for a prompt; stage ("plain", "pilot", "commit") is for the accounts."""

    prompt: Prompt
    count: int
    stage: str = "plain"


@dataclasses.dataclass(frozen=True)
class Group:
    """The verified rollouts of one request.

    Attributes:
      tokens, logprobs: [n, T] as the sampler returned them; lengths, truncated: [n].
      texts: the n decoded completions.
      rewards: [n] what the advantage sees; correct: [n] raw correctness, what allocators filter on.
      policy_version: the optimizer step whose parameters generated them.
      reasons: why each was judged as it was (see `pods_jax.rewards.Verdict`).
      parts: [n] each, what the reward is made of, by name; NaN where a part says nothing.
    """

    request: Request
    tokens: np.ndarray
    logprobs: np.ndarray
    lengths: np.ndarray
    truncated: np.ndarray
    texts: tuple[str, ...]
    rewards: np.ndarray
    correct: np.ndarray
    policy_version: int
    reasons: tuple[str, ...] = ()
    parts: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
