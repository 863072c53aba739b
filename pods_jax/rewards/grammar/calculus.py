r"""Values of `\sum`, `\prod`, `\int` and `\lim` by mpmath, each taken twice: a value is trusted if both agree.

The number of evaluations is limited, so that the time is too.
"""

from collections.abc import Callable
from typing import Any

from pods_jax.rewards.grammar.nodes import Call, Node

MAX_EVALUATIONS = 8_000
MAX_DEGREE = 9
TRUSTED_DIGITS = 35
EXTRA_DIGITS = 12

RULES = frozenset({"sum", "prod", "int", "lim", "lim+", "lim-"})
_NEGATIVE_INFINITY = Call("neg", (Call("inf"),))


class Unreliable(Exception):
    """Two ways to the value differ, or there are too many steps."""


def value(evaluator: Any, name: str, args: tuple[Node, ...]) -> Any:
    """The value of one of `RULES`, where `evaluator` gives values to what is inside.

    Raises:
      Unreliable: if the value does not converge.
    """
    body, variable, *ends = args
    limits = [_end(evaluator, end) for end in ends]
    mp, digits = evaluator.mp, evaluator.mp.dps
    function = _Counted(evaluator, body, variable.name)
    try:
        first = _taken(mp, name, function, limits)
        mp.dps = digits + EXTRA_DIGITS
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
    """The body as a function of its variable, which may be called so many times."""

    def __init__(self, evaluator: Any, body: Node, name: str):
        self.evaluator, self.body, self.name, self.calls = evaluator, body, name, 0

    def __call__(self, place: Any) -> Any:
        self.calls += 1
        budget = self.evaluator.spent = getattr(self.evaluator, "spent", 0) + 1
        if max(self.calls, budget) > MAX_EVALUATIONS:
            raise Unreliable
        self.evaluator.bind(self.name, self.evaluator.mp.convert(place))
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
        return mp.limit(function, limits[0], direction=side or 1)
    above, below = (mp.limit(function, limits[0], direction=direction) for direction in (1, -1))
    if abs(above - below) > mp.mpf(10) ** -TRUSTED_DIGITS * max(1, abs(above)):
        raise Unreliable
    return above


def _series(mp: Any, name: str, function: Callable[[Any], Any], limits: list[Any]) -> Any:
    """Term by term if it is finite, else by extrapolation."""
    low, high = limits
    if mp.isfinite(low) and mp.isfinite(high):
        if not (mp.isint(low) and mp.isint(high)) or high - low > MAX_EVALUATIONS // 2:
            raise Unreliable
        terms = [function(number) for number in range(int(low), int(high) + 1)]
        return mp.fsum(terms) if name == "sum" else mp.fprod(terms)
    return mp.nsum(function, limits) if name == "sum" else mp.nprod(function, limits)
