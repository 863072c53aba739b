r"""Values of `\sum`, `\prod`, `\int` and `\lim` by mpmath, each taken twice: a value is trusted if both agree.

The number of evaluations in one comparison is limited, so that the time is too.
"""

import threading
from collections.abc import Callable
from typing import Any

from pods_jax.rewards.grammar.nodes import Call, Node

MAX_EVALUATIONS = 12_000
COSTS = {"sum": 30, "prod": 30, "int": 30, "lim": 300, "lim+": 300, "lim-": 300}  # of extrapolation, in evaluations
MAX_DEGREE = 8
DIGITS = (36, 44)
MAX_TERMS = {"series": 300, "limit": 120}  # a limit that converges does so within 80, and each costs more than the last
FAR = 400
TRUSTED_DIGITS = 28

OPERATORS = frozenset(COSTS)
_spent = threading.local()
_NEGATIVE_INFINITY = Call("neg", (Call("inf"),))


class Unreliable(Exception):
    """Two ways to the value differ, or there are too many steps."""


def start_budget() -> None:
    """Lets this thread evaluate `MAX_EVALUATIONS` times from here on: the limit of one comparison of two formulas."""
    _spent.count = 0


def _spend(count: int) -> None:
    _spent.count = getattr(_spent, "count", 0) + count
    if _spent.count > MAX_EVALUATIONS:
        raise Unreliable


def value(evaluator: Any, name: str, args: tuple[Node, ...]) -> Any:
    """The value of one of `OPERATORS`, where `evaluator` gives values to what is inside.

    Raises:
      Unreliable: if the value does not converge.
    """
    _spend(COSTS[name])
    body, variable, *ends = args
    limits = [_end(evaluator, end) for end in ends]
    mp = evaluator.mp
    digits = mp.dps
    function = _Counted(evaluator, body, variable.name)
    try:
        mp.dps = DIGITS[0]
        first = _taken(mp, name, function, limits)
        mp.dps = DIGITS[1]
        second = _taken(mp, name, function, limits)
    finally:
        mp.dps = digits
        evaluator.point.pop(variable.name, None)
    if not mp.isfinite(second) or abs(first - second) > mp.mpf(10) ** -TRUSTED_DIGITS * max(1, abs(second)):
        raise Unreliable
    return +second


def _end(evaluator: Any, node: Node) -> Any:
    if node == Call("inf"):
        return evaluator.mp.inf
    return evaluator.mp.ninf if node == _NEGATIVE_INFINITY else evaluator.value(node)


class _Counted:
    """The body as a function of its variable; calls are counted."""

    def __init__(self, evaluator: Any, body: Node, name: str):
        self.evaluator, self.body, self.name = evaluator, body, name

    def __call__(self, place: Any) -> Any:
        _spend(1)
        self.evaluator.bind(self.name, self.evaluator.mp.convert(place))
        # Intermediate results at a place far out may be huge and count for nothing, so that they must not raise the
        # scale by which the value itself is compared.
        extent, scale, outer = self.evaluator.extent, self.evaluator.scale, self.evaluator.far_out
        self.evaluator.far_out = True
        try:
            return self.evaluator.value(self.body)
        finally:
            self.evaluator.extent, self.evaluator.scale, self.evaluator.far_out = extent, scale, outer


def _taken(mp: Any, name: str, function: Callable[[Any], Any], limits: list[Any]) -> Any:
    if name in ("sum", "prod"):
        return _series(mp, name, function, limits)
    if name == "int":
        found, error = mp.quad(function, limits, error=True, maxdegree=MAX_DEGREE)
        if error > mp.mpf(10) ** -TRUSTED_DIGITS * max(1, abs(found)):
            raise Unreliable
        return found
    side = {"lim": 0, "lim+": 1, "lim-": -1}[name]
    if side or not mp.isfinite(limits[0]):
        return _limit(mp, function, limits[0], side or 1)
    above, below = (_limit(mp, function, limits[0], direction) for direction in (1, -1))
    if abs(above - below) > mp.mpf(10) ** -TRUSTED_DIGITS * max(1, abs(above)):
        raise Unreliable
    return above


def _limit(mp: Any, function: Callable[[Any], Any], place: Any, direction: int) -> Any:
    return mp.limit(function, place, direction=direction, maxterms=MAX_TERMS["limit"])


def _series(mp: Any, name: str, function: Callable[[Any], Any], limits: list[Any]) -> Any:
    """Term by term if it is finite, else by extrapolation, if the terms far out come to nothing."""
    low, high = limits
    if mp.isfinite(low) and mp.isfinite(high):
        if not (mp.isint(low) and mp.isint(high)) or high - low > MAX_EVALUATIONS // 10:
            raise Unreliable
        terms = [function(number) for number in range(int(low), int(high) + 1)]
        return mp.fsum(terms) if name == "sum" else mp.fprod(terms)
    rest = {"sum": 0, "prod": 1}[name]
    far = mp.mpf(FAR) if mp.isfinite(low) else -mp.mpf(FAR)
    if abs(function(far) - rest) > mp.mpf(1) / 100:
        raise Unreliable
    if name == "sum":
        return mp.nsum(function, limits, maxterms=MAX_TERMS["series"])
    return mp.nprod(function, limits, maxterms=MAX_TERMS["series"])
