"""Seconds by phase, with compilation kept apart."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

import jax

_COMPILE_EVENTS = ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")


class PhaseClock:
    """Accumulates seconds a phase; time that JAX spends compiling inside one goes to "compile" instead.

    (Tracing is counted with the phase: JAX reports nested traces twice.)
    """

    def __init__(self):
        self.seconds: dict[str, float] = defaultdict(float)
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_s: float, **_) -> None:
        if event in _COMPILE_EVENTS:
            self.seconds["compile"] += duration_s

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start, compiled = time.perf_counter(), self.seconds["compile"]
        yield
        self.seconds[name] += max(time.perf_counter() - start - (self.seconds["compile"] - compiled), 0.0)

    def take(self) -> dict[str, float]:
        """The seconds since the last call, by phase."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds
