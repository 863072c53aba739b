"""Rollouts of a round that have ended are decoded and verified while others are generated."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np
from jaxtyping import Bool

from pods_jax.groups import Request
from pods_jax.rollout import Completions
from pods_jax.training.experience import Read, Rewarder, Share
from pods_jax.training.threads import DaemonThreads


class EarlyReading:
    """Reads the ended rollouts of this process's share of a round in a thread, while others are still generated."""

    def __init__(self, rewarder: Rewarder, requests: Sequence[Request], thread: DaemonThreads):
        self._rewarder = rewarder
        self._requests = requests
        self._thread = thread
        self._submitted: set[int] = set()
        self._pending: list[Future[dict[int, Read]]] = []

    def submit(self, completions: Completions, ended: Bool[np.ndarray, "P n"]) -> None:
        """Begins to read the rollouts that have ended since the last call; see `rollout.sampler.OnEnded`."""
        own = np.flatnonzero(ended[self._share.prompts, self._share.samples]).tolist()
        new = [row for row in own if row not in self._submitted]
        if new:
            self._submitted.update(new)
            self._pending.append(self._thread.submit(self._rewarder.read, completions, self._share, new))

    def result(self) -> dict[int, Read]:
        """Waits for the readings; returns them by row of the share, or raises the first error of one."""
        try:
            return {row: read for future in self._pending for row, read in future.result().items()}
        finally:
            for future in self._pending:
                future.cancel()

    @functools.cached_property
    def _share(self) -> Share:
        requests = self._requests
        return self._rewarder.share([request.prompt for request in requests], [request.count for request in requests])


@contextlib.contextmanager
def early_reading(rewarder: Rewarder, requests: Sequence[Request]) -> Iterator[EarlyReading]:
    """The reading of a round that is generated inside of `with`; what waits is dropped if that fails."""
    with DaemonThreads() as thread:
        yield EarlyReading(rewarder, requests, thread)
