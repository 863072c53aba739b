"""Sweep over n, the rollouts generated, or m, those trained on, until memory runs out: the asymmetry behind PODS."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pods_jax.config.schema import Config
from pods_jax.planning.chips import CHIPS, GiB
from pods_jax.planning.generation import FIRST_TURN
from pods_jax.planning.step_plan import Say, StepPlan, plan_step

LIMIT = 1 << 14
_PROGRAMS = {"n": FIRST_TURN, "m": ("update",)}
_VERBS = {"n": "generated", "m": "trained on"}


class Point(NamedTuple):
    """Memory on each device of one value of n or m.

    Attributes:
      rollouts: generated, or trained on, in a step.
      compiled: whether the program compiled; if not, `temporary_bytes` is all that the compiler asked for in vain.
      time_s: the least that the program takes; 0 where that is unknown.
    """

    value: int
    rollouts: int
    peak_bytes: int
    temporary_bytes: int
    compiled: bool
    fits: bool | None
    time_s: float


class SizeSweep(NamedTuple):
    """Points in order of n or m.

    Attributes:
      model: path or hub id.
      largest: the greatest value that fits, by a straight line; None if unknown.
    """

    symbol: str
    model: str
    topology: str
    chip: str | None
    points: list[Point]
    largest: int | None

    @property
    def verb(self) -> str:
        return _VERBS[self.symbol]

    @property
    def largest_rollouts(self) -> int:
        return self.largest * self.points[0].rollouts // self.points[0].value


def sweep_sizes(
    config: Config, symbol: str, topology: str, devices: Any, say: Say, values: list[int] | None = None
) -> SizeSweep:
    """Plans a step for each of `values`, or for doubled n or m until the program no longer fits.

    The update of a sweep over m has no micro-batches: accumulating gradients would trade time for the memory that is
    measured here.
    """
    points: list[Point] = []
    for value in values or _doublings(2 if symbol == "m" else 8):
        say(f"sweep    {symbol} = {value}")
        plan = plan_step(with_value(config, symbol, value), topology, devices, say, _PROGRAMS[symbol])
        points.append(_point(value, value * config.rollout.num_prompts, plan))
        if plan.fits is False and values is None:
            break
    model = config.model.path or "a model from scratch"
    return SizeSweep(symbol, model, topology, plan.chip, points, largest_that_fits(points, plan.chip))


def _point(value: int, rollouts: int, plan: StepPlan) -> Point:
    largest = max((phase.memory for phase in plan.phases), key=lambda memory: memory.peak)
    compiled = all(phase.memory.fits for phase in plan.phases)
    time_s = sum(phase.time_s for phase in plan.phases)
    return Point(value, rollouts, largest.peak, largest.temporaries, compiled, plan.fits, time_s)


def _doublings(start: int) -> list[int]:
    return [start << i for i in range(LIMIT.bit_length()) if start << i <= LIMIT]


def with_value(config: Config, symbol: str, value: int) -> Config:
    """The config with another n, or another m without micro-batches, and then with an n of at least m."""
    replace = dataclasses.replace
    rollout = config.rollout
    if symbol == "n":
        return replace(config, rollout=replace(rollout, num_generations=value))
    return replace(
        config,
        rollout=replace(rollout, num_generations=max(value, rollout.num_generations)),
        selection=replace(config.selection, num_kept=value),
        optimizer=replace(config.optimizer, micro_batch_size_per_device=None),
    )


def largest_that_fits(points: list[Point], chip: str | None) -> int | None:
    """The value at which a line through the last two points that compiled meets the chip's memory."""
    known = [p for p in points if p.compiled]
    if chip is None or len(known) < 2:
        return None
    a, b = known[-2:]
    slope = (b.peak_bytes - a.peak_bytes) / (b.value - a.value)
    return int(b.value + (CHIPS[chip].hbm_bytes - b.peak_bytes) / slope) if slope > 0 else None


def draw(sweep: SizeSweep, out: Path) -> None:
    """Draws memory against rollouts, with the chip's memory as a line, as a PNG."""
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    known = [p for p in sweep.points if p.compiled]
    axes.plot([p.rollouts for p in known], [p.peak_bytes / GiB for p in known], marker="o")
    if sweep.chip is not None:
        axes.axhline(CHIPS[sweep.chip].hbm_bytes / GiB, color="black", linestyle="--", label=f"{sweep.chip}")
        axes.legend()
    axes.set(
        xscale="log",
        xlabel=f"rollouts {sweep.verb} in a step",
        ylabel="GiB on each device",
        title=f"{sweep.model} on {sweep.topology}",
    )
    axes.set_xticks([p.rollouts for p in known], [f"{p.rollouts:,}" for p in known])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    figure.savefig(out, dpi=150)
