"""The replay buffer: groups that wait to be committed to, of bounded number and age."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pods_jax.allocation.outcomes import tally
from pods_jax.groups import Group, pack_groups, unpack_groups

Order = Callable[[Sequence[Group], np.random.Generator], Sequence[int] | np.ndarray]


def _random(groups: Sequence[Group], rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(len(groups))


def _max_variance(groups: Sequence[Group], rng: np.random.Generator) -> np.ndarray:
    """Success rates nearest to 1/2 first; of equal ones, the one that has waited longest."""
    return np.argsort([-tally(g).variance for g in groups], kind="stable")


def _most_recent(groups: Sequence[Group], rng: np.random.Generator) -> range:
    return range(len(groups) - 1, -1, -1)


def _least_recent(groups: Sequence[Group], rng: np.random.Generator) -> range:
    return range(len(groups))


ORDERS: dict[str, Order] = {
    "random": _random,
    "max_variance": _max_variance,
    "most_recent": _most_recent,
    "least_recent": _least_recent,
}
"""Who leaves the buffer first: the places of groups that are ordered from the first to the last added."""


class ReplayBuffer:
    """Groups in the order of their arrival, each with the step that it was added in."""

    def __init__(self, size: int, order: str):
        """size: how many are held at most; order: a name in ORDERS."""
        self._size, self._order = size, ORDERS[order]
        self.groups: list[Group] = []
        self._steps: list[int] = []

    def __len__(self) -> int:
        return len(self.groups)

    def add(self, group: Group, step: int) -> list[Group]:
        """Returns what had to leave so that the size holds: the one that was added first."""
        self.groups.append(group)
        self._steps.append(step)
        return self._take(range(len(self) - self._size))

    def expire(self, oldest: int) -> list[Group]:
        """Takes out what was added before step `oldest`."""
        return self._take([i for i, step in enumerate(self._steps) if step < oldest])

    def pop(self, count: int, rng: np.random.Generator) -> list[Group]:
        """Takes out up to `count` groups, in the buffer's order."""
        return self._take(self._order(self.groups, rng)[:count])

    def clear(self) -> list[Group]:
        """Takes out all."""
        return self._take(range(len(self)))

    def _take(self, places: Sequence[int] | np.ndarray) -> list[Group]:
        if len(places) == 0:
            return []
        taken = [self.groups[i] for i in places]
        gone = {int(i) for i in places}
        stay = [i for i in range(len(self)) if i not in gone]
        self.groups = [self.groups[i] for i in stay]
        self._steps = [self._steps[i] for i in stay]
        return taken

    def state_dict(self) -> dict:
        return {"groups": pack_groups(self.groups), "steps": list(self._steps)}

    def load_state_dict(self, state: Mapping) -> None:
        self.groups, self._steps = unpack_groups(state["groups"]), list(state["steps"])
