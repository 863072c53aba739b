"""The next step's rollouts, which are generated in a thread of their own while the present step goes on."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from pods_jax.groups import Request, unpack_prompt
from pods_jax.rollout import Completions
from pods_jax.rollout.sampler import no_completions
from pods_jax.training.experience import Early
from pods_jax.training.threads import DaemonThreads

OF_TURNS = ("loss_mask", "environment_rewards", "last_turns")
"""Fields of completions that those of one turn do not have."""


class Round(NamedTuple):
    """A round of generation, before verification.

    Attributes:
      version: of the policy that generated it; seconds: the time that it took.
      completions: None where there are no requests.
      early: gives what was read of them while others were generated.
    """

    requests: Sequence[Request]
    completions: Completions | None
    version: int
    seconds: float = 0.0
    early: Early = dict


class Ahead:
    """The round of the next step, which is generated while the present step goes on."""

    def __init__(self) -> None:
        self._pending: Future | None = None

    def start(self, generate: Callable[[], Round]) -> None:
        """Begins a round, in a thread of its own. The one before must have been taken."""
        with DaemonThreads() as thread:
            self._pending = thread.submit(_timed, generate)

    def wait(self) -> None:
        """Returns when no round is under way; an error waits for `take`."""
        if self._pending is not None:
            self._pending.exception()

    def take(self) -> Round | None:
        """The round, waited for; None if none was begun. Raises what its generation raised."""
        if self._pending is None:
            return None
        done = self._pending.result()
        self._pending = None
        return done

    def state_dict(self) -> dict[str, Any]:
        """The round, waited for, as JSON-able values and numpy arrays; {} if there is none."""
        return {} if self._pending is None else pack_round(self._pending.result())

    def load_state_dict(self, state: Mapping[str, Any], pad_id: int) -> None:
        """Has the round of `state_dict`, as if it had just been generated. pad_id: of its completions."""
        self._pending = None
        if state:
            self._pending = Future()
            self._pending.set_result(unpack_round(state, pad_id))


def _timed(generate: Callable[[], Round]) -> Round:
    start_s = time.perf_counter()
    return generate()._replace(seconds=time.perf_counter() - start_s)


def pack_round(done: Round) -> dict[str, Any]:
    """The state of a round that has requests; of token arrays, only what is no padding."""
    c = done.completions
    own = _own(c.lengths, c.tokens.shape[-1])
    return {
        "requests": [dataclasses.asdict(request) for request in done.requests],
        "version": done.version,
        "max_new_tokens": c.tokens.shape[-1],
        "tokens": c.tokens[own],
        "logprobs": c.logprobs[own],
        "lengths": c.lengths,
        "truncated": c.truncated,
        "drawn_logprobs": None if c.drawn_logprobs is None else c.drawn_logprobs[own],
    } | {name: getattr(c, name) for name in OF_TURNS if getattr(c, name) is not None}


def unpack_round(state: Mapping[str, Any], pad_id: int) -> Round:
    """The round that `pack_round` packed."""
    requests = [Request(**{**r, "prompt": unpack_prompt(r["prompt"])}) for r in state["requests"]]
    c = no_completions([request.count for request in requests], state["max_new_tokens"], pad_id)
    own = _own(state["lengths"], state["max_new_tokens"])
    c.tokens[own] = state["tokens"]
    c.logprobs[own] = state["logprobs"]
    if state["drawn_logprobs"] is not None:
        c = c._replace(drawn_logprobs=np.zeros_like(c.logprobs))
        c.drawn_logprobs[own] = state["drawn_logprobs"]
    names = ("lengths", "truncated", *OF_TURNS)
    return Round(requests, c._replace(**{name: state[name] for name in names if name in state}), state["version"])


def _own(lengths: np.ndarray, max_new_tokens: int) -> np.ndarray:
    """True for the tokens [P, n, T] that are no padding."""
    return np.arange(max_new_tokens) < lengths[..., None]
