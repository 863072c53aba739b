"""An allocator's books: every rollout it was given was handed over, discarded, or is held."""

from collections.abc import Iterable, Sequence

from pods_jax.records import Group

ROLLOUTS = ("rollouts_generated", "rollouts_handed_over", "rollouts_discarded")


class Accounts:
    """Counters that only grow, by name: the three of ROLLOUTS, and the allocator's own."""

    def __init__(self, names: Sequence[str]):
        self.counts = dict.fromkeys((*ROLLOUTS, *names), 0)

    def add(self, name: str, count: int = 1) -> None:
        """Raises KeyError for a name that was not given at the start."""
        self.counts[name] += count

    def add_rollouts(self, name: str, groups: Iterable[Group]) -> None:
        """Counts the groups' rollouts."""
        self.add(name, num_rollouts(groups))

    def metrics(self, held: Iterable[Group]) -> dict[str, float]:
        """All counters, and how many rollouts are in the groups held now, as "allocation/NAME"."""
        values = self.counts | {"rollouts_held": num_rollouts(held)}
        return {f"allocation/{name}": float(value) for name, value in values.items()}

    def state_dict(self) -> dict:
        return dict(self.counts)

    def load_state_dict(self, state: dict) -> None:
        self.counts.update(state)


def num_rollouts(groups: Iterable[Group]) -> int:
    """How many rollouts the groups have together."""
    return sum(len(g.rewards) for g in groups)
