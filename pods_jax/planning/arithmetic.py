"""The part of a plan that needs no compiler, for GPUs that are not there: arrays and arithmetic by formula."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.planning.chips import CHIPS
from pods_jax.planning.generation import FIRST_TURN
from pods_jax.planning.programs import programs
from pods_jax.planning.run_shapes import Program, run_shapes

WHY = (
    "{chip}s are planned without a compiler: XLA compiles for NVIDIA GPUs only where one is. These are the arrays that "
    "formulas give and the arithmetic at the chip's peak, without activations and collectives; for all of it run the "
    "plan on such a machine with --topology local."
)


class ProgramEstimate(NamedTuple):
    """A program without compiling it.

    Attributes:
      parts: named arrays on each device, in bytes, those that the program does not see among them.
      compute_s, memory_s: seconds a step for its arithmetic, and to read weights and cache once for each token that it
        decodes (0 for programs that decode none), at the chip's peaks.
    """

    program: Program
    parts: dict[str, int]
    compute_s: float
    memory_s: float

    @property
    def bytes(self) -> int:
        """All parts together: the least that the program needs on each device."""
        return sum(self.parts.values())


def gpus(topology: str) -> tuple[str, int] | None:
    """The chip and number of a topology such as "H200:8"; None for those of other kinds.

    Raises:
      UserError: the number is none.
    """
    name, _, count = topology.partition(":")
    if name not in CHIPS or name.startswith("v"):
        return None
    if not count.isdecimal() or int(count) < 1:
        raise UserError(f"--topology {topology}: give the number of GPUs, as in {name}:8")
    return name, int(count)


def stand_ins(count: int) -> Sequence[Any]:
    """`count` simulated CPU devices, over which arrays are laid out; nothing runs on them.

    Raises:
      UserError: JAX already has another number of devices.
    """
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started
        if len(jax.devices()) < count:
            raise UserError(f"{count} devices cannot be simulated in a process in which JAX has started") from None
    return jax.devices()[:count]


def estimates(config: Config, chip: str, devices: Sequence[Any]) -> list[ProgramEstimate]:
    """An estimate of each program of a step."""
    numbers = CHIPS[chip]
    found = []
    for program in programs(run_shapes(config, devices)):
        arrays = program.given | program.within
        read = program.unknown_trips * sum(arrays.values()) - program.spared_bytes
        decodes = program.name in FIRST_TURN
        found.append(
            ProgramEstimate(
                program,
                arrays | {"not seen by the program": program.beside},
                program.runs * program.flops / len(devices) / numbers.flops_per_s,
                decodes * program.runs * read / numbers.hbm_bytes_per_s,
            )
        )
    return found
