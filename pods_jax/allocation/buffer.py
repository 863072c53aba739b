"""The replay buffer: groups that wait for a later round or step, bounded in number and in age."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pods_jax.allocation.outcomes import outcome_of
from pods_jax.groups import Group, array_names, pack_groups, unpack_groups


def detached(group: Group) -> Group:
    """A copy of the group, with arrays of its own.

    The arrays of a group that was just generated are views, which keep all of its round's [P, n, T] arrays in memory.
    """
    arrays = {name: getattr(group, name).copy() for name in array_names(group)}
    parts = {name: values.copy() for name, values in group.parts.items()}
    return dataclasses.replace(group, parts=parts, **arrays)


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A group in the buffer, the step in which it was added, and the variance of its outcomes (see `Outcome`)."""

    group: Group
    step: int
    variance: float


# ---------------------------------------------------------------- the order of leaving


Order = Callable[[Sequence[Waiting], np.random.Generator], Sequence[int] | np.ndarray]
"""A function of the waiting groups, in the order of their arrival; it gives their places in the order of leaving."""


def _random(waiting: Sequence[Waiting], rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(len(waiting))


def _max_variance(waiting: Sequence[Waiting], rng: np.random.Generator) -> list[int]:
    """The largest variance first; equal ones by the latest step, then by the order of adding, as the authors' code."""
    return sorted(range(len(waiting)), key=lambda i: (-waiting[i].variance, -waiting[i].step))


def _max_variance_oldest(waiting: Sequence[Waiting], rng: np.random.Generator) -> list[int]:
    """The largest variance first; among equal ones, the group that has waited longest."""
    return sorted(range(len(waiting)), key=lambda i: -waiting[i].variance)


def _most_recent(waiting: Sequence[Waiting], rng: np.random.Generator) -> list[int]:
    """The latest step first; within a step, the first added, as the authors' code."""
    return sorted(range(len(waiting)), key=lambda i: -waiting[i].step)


def _least_recent(waiting: Sequence[Waiting], rng: np.random.Generator) -> range:
    return range(len(waiting))


ORDERS: Mapping[str, Order] = {
    "random": _random,
    "max_variance": _max_variance,
    "max_variance_oldest": _max_variance_oldest,
    "most_recent": _most_recent,
    "least_recent": _least_recent,
}


# ---------------------------------------------------------------- the buffer


class ReplayBuffer:
    """Groups in the order of their arrival, each with the step in which it was added."""

    def __init__(self, size: int, order: str, criterion: str = "correctness"):
        """size: largest number of groups held; order: a name in ORDERS; criterion: a name in CRITERIA (`outcomes`)."""
        self._size = size
        self._order = ORDERS[order]
        self._criterion = criterion
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def groups(self) -> list[Group]:
        return [w.group for w in self._waiting]

    def add(self, group: Group, step: int) -> list[Group]:
        """Adds a copy of the group. Returns the groups that this pushes out of a full buffer, the first added."""
        self._append(detached(group), step)
        return self._take(range(len(self) - self._size))

    def _append(self, group: Group, step: int) -> None:
        self._waiting.append(Waiting(group, step, outcome_of(group, self._criterion).variance))

    def expire(self, oldest: int) -> list[Group]:
        """Takes out the groups that were added before step `oldest`."""
        return self._take([i for i, w in enumerate(self._waiting) if w.step < oldest])

    def pop(self, count: int, rng: np.random.Generator) -> list[Group]:
        """Takes out up to `count` groups, in the buffer's order."""
        return self._take(self._order(self._waiting, rng)[:count])

    def clear(self) -> list[Group]:
        """Takes out all groups."""
        return self._take(range(len(self)))

    def _take(self, places: Sequence[int] | np.ndarray) -> list[Group]:
        taken = [self._waiting[i].group for i in places]
        gone = {int(i) for i in places}
        self._waiting = [w for i, w in enumerate(self._waiting) if i not in gone]
        return taken

    def state_dict(self) -> dict:
        return {"groups": pack_groups(self.groups), "steps": [w.step for w in self._waiting]}

    def load_state_dict(self, state: Mapping) -> None:
        self._waiting = []
        for group, step in zip(unpack_groups(state["groups"]), state["steps"], strict=True):
            self._append(group, step)
