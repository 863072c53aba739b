"""The choice of a learning rate: uphill from neighbour to neighbour, until both neighbours of the best are tried."""

from collections.abc import Mapping


def next_rate(tried: Mapping[float, float], first: float, factor: float, lowest: float, highest: float) -> float | None:
    """The rate to try next, given the scores of those that were tried; None when the best one is known.

    Rates are first x factor^k, within the bounds. The search ends at a rate whose neighbours within the bounds are not
    better; of equal scores the lower rate counts as better.
    """
    if not tried:
        return first
    best = best_rate(tried)
    for neighbour in (best * factor, best / factor):
        if lowest <= neighbour * (1 + 1e-9) and neighbour <= highest * (1 + 1e-9) and _known(tried, neighbour) is None:
            return neighbour
    return None


def best_rate(tried: Mapping[float, float]) -> float:
    """The rate of the highest score; of equals the lowest."""
    return max(sorted(tried), key=tried.__getitem__)


def _known(tried: Mapping[float, float], rate: float) -> float | None:
    """The score of a rate, whatever the rounding of its arithmetic."""
    return next((score for known, score in tried.items() if abs(known / rate - 1) < 1e-6), None)
