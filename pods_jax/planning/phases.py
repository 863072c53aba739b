"""Programs compiled, and what follows from them: whether a step fits, and how long it takes at the least."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax

from pods_jax.config.schema import Config
from pods_jax.planning.chips import CHIPS, Chip, chip_name
from pods_jax.planning.collectives import Traffic, traffic
from pods_jax.planning.footprint import Memory, compiled_memory, overflow
from pods_jax.planning.lowering import Program, Setting, make_setting, programs

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Phase:
    """A compiled program of a step.

    Attributes:
      memory: bytes on one device.
      traffic: what one device sends in one run, by kind of collective; empty where the program did not compile.
      times_s: of one step, at the chip's peaks: "compute", "memory", "interconnect"; empty if they are unknown.
    """

    program: Program
    memory: Memory
    traffic: dict[str, Traffic]
    times_s: dict[str, float]
    compile_s: float

    @property
    def time_s(self) -> float:
        """The least that the phase takes: everything at its peak, and all at once."""
        return max(self.times_s.values(), default=0.0)

    @property
    def bound(self) -> str:
        """What that time is spent on."""
        return max(self.times_s, key=self.times_s.get) if self.times_s else ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A step of a config on a mesh."""

    setting: Setting
    topology: str
    chip: str | None
    phases: list[Phase]

    @property
    def peak_bytes(self) -> int:
        return max(phase.memory.peak for phase in self.phases)

    @property
    def fits(self) -> bool | None:
        """Whether each phase fits the chip's memory; None where that is unknown."""
        if not all(phase.memory.fits for phase in self.phases):
            return False
        return None if self.chip is None else self.peak_bytes <= CHIPS[self.chip].hbm_bytes


PHASES = ("sampling", "scoring", "rescoring", "update")


def plan_step(config: Config, topology: str, devices: Any, say: Say, names: Iterable[str] = PHASES) -> Plan:
    """Compiles the programs of a step, one after the other.

    Args:
      devices: of the topology; see `chips.topology_devices`.
      say: is told what is being done; a large model takes minutes.
      names: which programs.
    """
    setting = make_setting(config, devices)
    chip = chip_name(setting.mesh.devices.flat[0].device_kind)
    phases = []
    for program in programs(setting):
        if program.name in names:
            phases.append(_compile(program, setting.mesh.size, chip and CHIPS[chip], say))
    return Plan(setting, topology, chip, phases)


def _compile(program: Program, num_devices: int, chip: Chip | None, say: Say) -> Phase:
    say(f"compile  {program.name} ...")
    start = time.perf_counter()
    lowered = program.lower()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        memory = overflow(str(error), program.beside)
        if memory is None:
            raise
        sent = {}
    else:
        memory, sent = compiled_memory(compiled, program.beside), traffic(compiled.as_text(), program.unknown_trips)
    compile_s = time.perf_counter() - start
    say(f"compile  {program.name}: {compile_s:.0f} s")
    times = {} if chip is None or not memory.fits else least_times(program, sent, num_devices, chip)
    return Phase(program, memory, sent, times, compile_s)


def least_times(program: Program, sent: dict[str, Traffic], num_devices: int, chip: Chip) -> dict[str, float]:
    """Seconds a step for arithmetic, memory and links, each at the chip's peak (the roofline model, Williams et al.

    2009, doi 10.1145/1498765.1498785). Real programs reach a half of it, or less.
    """
    once = {
        "compute": program.flops / num_devices / chip.flops_per_s,
        "memory": program.read_bytes / chip.hbm_bytes_per_s,
        "interconnect": sum(t.sent_bytes for t in sent.values()) / chip.link_bytes_per_s,
    }
    return {name: program.runs * seconds for name, seconds in once.items()}
