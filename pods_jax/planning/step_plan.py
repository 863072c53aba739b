"""The plan of a step: its programs compiled, their memory, and the least time that they take."""

import dataclasses
import re
import time
from collections.abc import Callable, Container
from typing import Any, NamedTuple

import jax

from pods_jax.config.schema import Config
from pods_jax.planning.chips import CHIPS, Chip, chip_name
from pods_jax.planning.collectives import Traffic, traffic
from pods_jax.planning.generation import FIRST_TURN, LATER_TURN
from pods_jax.planning.memory_traffic import moved_bytes
from pods_jax.planning.programs import programs
from pods_jax.planning.run_shapes import Program, RunShapes, run_shapes

Say = Callable[[str], None]
PROGRAMS = (*FIRST_TURN, *LATER_TURN, "scoring", "rescoring", "entropies", "update")
"""Names of the programs that a step may have."""


class Memory(NamedTuple):
    """Bytes on one device while a program runs.

    Attributes:
      arguments: the program's arguments, the parts of a donated state among them.
      outputs: its results in memory of their own.
      temporaries: its intermediate arrays; or what is held for them before it runs, if that is more.
      code: the program itself.
      beside: other arrays of the run that are on the device meanwhile.
      fits: whether it compiled. Where the compiler says that the chip's memory is too small, this is False and
        `temporaries` is all that it asked for, as it does not say what for.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    beside: int
    fits: bool = True

    @property
    def peak(self) -> int:
        return self.arguments + self.outputs + self.temporaries + self.code + self.beside


@dataclasses.dataclass(frozen=True)
class Phase:
    """A compiled program of a step.

    Attributes:
      traffic: bytes that one device sends in one run, by kind of collective; empty where the program did not compile.
      moved_bytes: bytes between one device and its memory in a mean run; 0 where the program did not compile.
      times_s: seconds of one step at the chip's peaks: "compute", "memory", "interconnect"; empty if unknown.
    """

    program: Program
    memory: Memory
    traffic: dict[str, Traffic]
    moved_bytes: float
    times_s: dict[str, float]
    compile_s: float

    @property
    def time_s(self) -> float:
        """The least that the phase takes: everything at its peak, and all at once."""
        return max(self.times_s.values(), default=0.0)

    @property
    def bound(self) -> str:
        """The resource that takes the longest at its peak; empty if unknown."""
        return max(self.times_s, key=self.times_s.get) if self.times_s else ""


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """The phases of a step of a config on a mesh; chip: a key of CHIPS, None for a device that is not in the table."""

    run: RunShapes
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


def plan_step(config: Config, topology: str, devices: Any, say: Say, names: Container[str] = PROGRAMS) -> StepPlan:
    """Compiles the programs of a step, one after the other.

    Args:
      devices: of the topology; see `chips.topology_devices`.
      say: is told which program is being compiled; a large model takes minutes.
      names: the programs to compile, if the step has them.
    """
    run = run_shapes(config, devices)
    chip = chip_name(run.mesh.devices.flat[0].device_kind)
    wanted = (program for program in programs(run) if program.name in names)
    phases = [_compile(program, run.mesh.size, chip and CHIPS[chip], say) for program in wanted]
    return StepPlan(run, topology, chip, phases)


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
        moved = 0.0
    else:
        memory = compiled_memory(compiled, program.beside)
        memory = memory._replace(temporaries=max(memory.temporaries, program.before))
        text = compiled.as_text()
        sent = traffic(text, program.unknown_trips)
        moved = moved_bytes(text, program.unknown_trips) - program.spared_bytes
    compile_s = time.perf_counter() - start
    say(f"compile  {program.name}: {compile_s:.0f} s")
    times = {} if chip is None or not memory.fits else least_times(program, sent, moved, num_devices, chip)
    return Phase(program, memory, sent, moved, times, compile_s)


def compiled_memory(compiled: jax.stages.Compiled, beside: int) -> Memory:
    """Memory of a program that compiled; beside: bytes that it does not see."""
    m = compiled.memory_analysis()
    return Memory(
        arguments=m.argument_size_in_bytes,
        outputs=m.output_size_in_bytes - m.alias_size_in_bytes,
        temporaries=m.temp_size_in_bytes,
        code=m.generated_code_size_in_bytes,
        beside=beside,
    )


_OVERFLOW = re.compile(r"Ran out of memory .*?(?:Used |HLO temporaries \()([\d.]+)([KMGT])")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def overflow(message: str, beside: int) -> Memory | None:
    """Memory of a program that is too large for its chip, from the compiler's error; None for any other error."""
    found = _OVERFLOW.search(message)
    if found is None:
        return None
    return Memory(0, 0, int(float(found[1]) * _UNITS[found[2]]), 0, beside, fits=False)


def least_times(
    program: Program, sent: dict[str, Traffic], moved: float, num_devices: int, chip: Chip
) -> dict[str, float]:
    """Seconds a step for arithmetic, memory and links, each at the chip's peak; real programs take twice that or more.

    This is the roofline model (Williams et al. 2009, doi 10.1145/1498765.1498785).
    """
    once = {
        "compute": program.flops / num_devices / chip.flops_per_s,
        "memory": moved / chip.hbm_bytes_per_s,
        "interconnect": sum(t.sent_bytes for t in sent.values()) / chip.link_bytes_per_s,
    }
    return {name: program.runs * seconds for name, seconds in once.items()}
