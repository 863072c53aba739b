"""Groups that wait for a later round or step: the replay buffer, of bounded number and age, and copies to keep."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pods_jax.allocation.outcomes import outcome_of
from pods_jax.groups import ARRAYS, Group, pack_groups, unpack_groups


def detached(group: Group) -> Group:
    """The group with arrays of its own: a group that was just generated has views, which keep its round's [P, n, T]
    arrays alive for as long as it waits."""
    arrays = {name: getattr(group, name).copy() for name in ARRAYS}
    parts = {name: values.copy() for name, values in group.parts.items()}
    return dataclasses.replace(group, parts=parts, **arrays)


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A group in the buffer, the step that it was added in, and the variance of its outcomes (see `Outcome`)."""

    group: Group
    step: int
    variance: float


# ---------------------------------------------------------------- who leaves first


Order = Callable[[Sequence[Waiting], np.random.Generator], Sequence[int] | np.ndarray]
"""The places of what waits, listed from the first to the last added; the first of them leaves first."""


def _random(waiting: Sequence[Waiting], rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(len(waiting))


def _max_variance(waiting: Sequence[Waiting], rng: np.random.Generator) -> list[int]:
    """The largest variance first, of equal ones the latest step, within it the first added, as the authors' code."""
    return sorted(range(len(waiting)), key=lambda i: (-waiting[i].variance, -waiting[i].step))


def _max_variance_oldest(waiting: Sequence[Waiting], rng: np.random.Generator) -> list[int]:
    """The largest variance first, of equal ones the one that has waited longest."""
    return sorted(range(len(waiting)), key=lambda i: -waiting[i].variance)


def _most_recent(waiting: Sequence[Waiting], rng: np.random.Generator) -> list[int]:
    """The latest step first, within it the first added, as the authors' code."""
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
    """Groups in the order of their arrival, each with the step that it was added in."""

    def __init__(self, size: int, order: str, criterion: str = "correctness"):
        """size: how many are held at most; order: a name in ORDERS; criterion: what the variance is of."""
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
        """Keeps a copy; returns what had to leave so that the size holds: the one that was added first."""
        self._append(detached(group), step)
        return self._take(range(len(self) - self._size))

    def _append(self, group: Group, step: int) -> None:
        self._waiting.append(Waiting(group, step, outcome_of(group, self._criterion).variance))

    def expire(self, oldest: int) -> list[Group]:
        """Takes out what was added before step `oldest`."""
        return self._take([i for i, w in enumerate(self._waiting) if w.step < oldest])

    def pop(self, count: int, rng: np.random.Generator) -> list[Group]:
        """Takes out up to `count` groups, in the buffer's order."""
        return self._take(self._order(self._waiting, rng)[:count])

    def clear(self) -> list[Group]:
        """Takes out all."""
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
