"""Seconds by phase, with compilation kept apart."""

import contextlib
import functools
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import jax

_COMPILE_EVENTS = ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")


@functools.cache
def _compilation() -> Counter:
    """A running total of this process's seconds of compilation, under "s". (Tracing is left with its phase: JAX
    reports nested traces twice.)"""
    total: Counter = Counter()

    def add(event: str, duration_s: float, **_) -> None:
        total["s"] += duration_s if event in _COMPILE_EVENTS else 0.0

    jax.monitoring.register_event_duration_secs_listener(add)
    return total


class PhaseClock:
    """Accumulates seconds a phase; time that JAX spends compiling inside one goes to "compile" instead.

    A phase within another has its time for itself: no second is counted twice.
    """

    def __init__(self):
        self._seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start, compiled, before = time.perf_counter(), _compilation()["s"], Counter(self._seconds)
        yield
        inner = sum(self._seconds.values()) - sum(before.values())
        compiled = _compilation()["s"] - compiled - (self._seconds["compile"] - before["compile"])
        self._seconds["compile"] += compiled
        self._seconds[name] += max(time.perf_counter() - start - inner - compiled, 0.0)

    def take(self) -> dict[str, float]:
        """The seconds since the last call, by phase."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds
