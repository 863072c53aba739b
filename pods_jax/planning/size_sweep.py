"""How many rollouts can be generated (n), and how many trained on (m), before memory runs out: PODS's asymmetry."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pods_jax.config.schema import Config
from pods_jax.planning.chips import CHIPS, GiB
from pods_jax.planning.phases import Say, plan_step

LIMIT = 1 << 14
_PHASES = {"n": "sampling", "m": "update"}
_VERBS = {"n": "generated", "m": "trained on"}


class Point(NamedTuple):
    """One value of n or m: the rollouts that a step has of it, and what its program needs on each device.

    compiled: whether there is a program; where not, the bytes are what the compiler asked for in vain.
    """

    value: int
    rollouts: int
    peak_bytes: int
    temporary_bytes: int
    compiled: bool
    fits: bool | None
    time_s: float


class Sweep(NamedTuple):
    """A curve. largest: the greatest value that fits, by linear interpolation; None where the chip is unknown."""

    symbol: str
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


def sweep(config: Config, symbol: str, topology: str, devices: Any, say: Say, values: list[int] | None = None) -> Sweep:
    """Doubles n or m until the program no longer fits, or goes through `values`.

    m rollouts a prompt are in memory at once: the update of a sweep over m has no micro-batches, as accumulating
    gradients trades time for the memory that is measured here.
    """
    points: list[Point] = []
    for value in values or _doublings(2 if symbol == "m" else 8):
        say(f"sweep    {symbol} = {value}")
        plan = plan_step(with_value(config, symbol, value), topology, devices, say, (_PHASES[symbol],))
        memory, time_s = plan.phases[0].memory, plan.phases[0].time_s
        rollouts = value * config.rollout.num_prompts
        points.append(Point(value, rollouts, memory.peak, memory.temporaries, memory.fits, plan.fits, time_s))
        if plan.fits is False and values is None:
            break
    return Sweep(symbol, topology, plan.chip, points, largest_that_fits(points, plan.chip))


def _doublings(start: int) -> list[int]:
    return [start << i for i in range(LIMIT.bit_length()) if start << i <= LIMIT]


def with_value(config: Config, symbol: str, value: int) -> Config:
    """The config with another n or m; n is at least m, and m is all that is trained on at once."""
    rollout, selection, optimizer = config.rollout, config.selection, config.optimizer
    if symbol == "n":
        rollout = dataclasses.replace(rollout, num_generations=value)
    else:
        rollout = dataclasses.replace(rollout, num_generations=max(value, rollout.num_generations))
        selection = dataclasses.replace(selection, num_kept=value)
        optimizer = dataclasses.replace(optimizer, micro_batch_size_per_device=None)
    return dataclasses.replace(config, rollout=rollout, selection=selection, optimizer=optimizer)


def largest_that_fits(points: list[Point], chip: str | None) -> int | None:
    """Where the line through the last two points whose programs compiled meets the chip's memory."""
    known = [p for p in points if p.compiled]
    if chip is None or len(known) < 2:
        return None
    a, b = known[-2:]
    slope = (b.peak_bytes - a.peak_bytes) / (b.value - a.value)
    return int(b.value + (CHIPS[chip].hbm_bytes - b.peak_bytes) / slope) if slope > 0 else None


def draw(sweep: Sweep, out: Path) -> None:
    """Memory against rollouts, with the chip's memory as a line, as a PNG."""
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    known = [p for p in sweep.points if p.compiled]
    axes.plot([p.rollouts for p in known], [p.peak_bytes / GiB for p in known], marker="o")
    if sweep.chip is not None:
        axes.axhline(CHIPS[sweep.chip].hbm_bytes / GiB, color="black", linestyle="--", label=f"{sweep.chip}")
        axes.legend()
    axes.set(xscale="log", xlabel=f"rollouts {sweep.verb} in a step", ylabel="GiB on each device", title=sweep.topology)
    axes.set_xticks([p.rollouts for p in known], [f"{p.rollouts:,}" for p in known])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    figure.savefig(out, dpi=150)
