"""Candidates for a round: prompts of one epoch that have not been evicted."""

import dataclasses
from collections.abc import Mapping

from pods_jax.allocation.base import Stream
from pods_jax.allocation.packing import pack_table, unpack_prompt, unpack_table
from pods_jax.records import Prompt


class CandidateSource:
    """Draws from the stream; a round never crosses into the next epoch, whose first prompt waits for the next round."""

    def __init__(self, evict_after: int):
        """evict_after: how many epochs in a row an example must be solved in to be evicted."""
        self._evict_after = evict_after
        self._epoch = 0
        self._waiting: Prompt | None = None
        self._solved: dict[int, int] = {}
        self._evicted: dict[int, int] = {}

    @property
    def evicted(self) -> frozenset[int]:
        """The indices of the evicted examples."""
        return frozenset(self._evicted)

    def spent(self, stream: Stream) -> bool:
        """Whether no example is left to draw."""
        return len(self._evicted) >= stream.num_examples

    def draw(self, stream: Stream, count: int) -> tuple[list[Prompt], bool]:
        """Up to `count` prompts of one epoch, and whether it is a later one than the last draw's."""
        drawn: list[Prompt] = []
        before = self._epoch
        while len(drawn) < count and not self.spent(stream):
            prompt = self._waiting or stream.next(1)[0]
            self._waiting = None
            if prompt.epoch != self._epoch and drawn:
                self._waiting = prompt
                break
            self._epoch = prompt.epoch
            if not prompt.epoch > self._evicted.get(prompt.index, prompt.epoch):
                drawn.append(prompt)
        return drawn, self._epoch != before

    def note(self, prompt: Prompt, solved: bool) -> bool:
        """Counts a solved pilot, or ends its row; returns whether it evicts the example, from the next epoch on."""
        row = self._solved.pop(prompt.index, 0)
        if not solved:
            return False
        if row + 1 < self._evict_after:
            self._solved[prompt.index] = row + 1
            return False
        self._evicted[prompt.index] = prompt.epoch
        return True

    def state_dict(self) -> dict:
        return {
            "epoch": self._epoch,
            "waiting": self._waiting and dataclasses.asdict(self._waiting),
            "solved": pack_table(self._solved),
            "evicted": pack_table(self._evicted),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self._epoch = state["epoch"]
        self._waiting = state["waiting"] and unpack_prompt(state["waiting"])
        self._solved, self._evicted = unpack_table(state["solved"]), unpack_table(state["evicted"])
