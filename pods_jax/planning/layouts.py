"""Layouts to try where the links between devices bound a phase: the first that is faster and fits is suggested."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_collections import FrozenConfigDict

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.planning.generation import FIRST_TURN
from pods_jax.planning.step_plan import Phase, Say, StepPlan, plan_step


class Suggestion(NamedTuple):
    """Another layout for a phase.

    Attributes:
      phase: its name; options: what to append to the command line.
      before_s, after_s: the least seconds that the phase takes, as it is planned and with the options.
    """

    phase: str
    options: str
    before_s: float
    after_s: float


def suggestions(plan: StepPlan, devices: Any, say: Say) -> Iterator[Suggestion]:
    """A suggestion for each phase that the interconnect bounds, if one of a few layouts is faster and fits.

    Each layout that is tried is compiled.
    """
    for phase in plan.phases:
        if phase.bound == "interconnect":
            yield from _first_better(plan, phase, devices, say)


def _first_better(plan: StepPlan, phase: Phase, devices: Any, say: Say) -> Iterator[Suggestion]:
    name = phase.program.name
    for options, config in _candidates(plan, name):
        say(f"try      {name} with {options}")
        try:
            other = plan_step(config, plan.topology, devices, say, (name,))
        except UserError:  # a layout that does not fit the model or the batch
            continue
        for found in other.phases:  # none where the layout needs no such program
            if other.fits and found.time_s < phase.time_s:
                yield Suggestion(name, options, phase.time_s, found.time_s)
                return


def _candidates(plan: StepPlan, name: str) -> Iterator[tuple[str, Config]]:
    """Options and the config with them, the layout that sends least first."""
    config = plan.run.config
    if name in FIRST_TURN:
        present = plan.run.sampling_mesh.shape
        for tensor in (1, 2, 4, 8):
            if (present["tensor"], present["fsdp"]) != (tensor, 1):
                sampling = FrozenConfigDict({"tensor": tensor})
                mesh = dataclasses.replace(config.mesh, sampling=sampling)
                yield f"--config.mesh.sampling=\"{{'tensor': {tensor}}}\"", dataclasses.replace(config, mesh=mesh)
    else:
        data = plan.run.mesh.shape["data"]
        fsdp = plan.run.mesh.shape["fsdp"]
        while fsdp > 2 and fsdp % 2 == 0:
            data *= 2
            fsdp //= 2
            mesh = dataclasses.replace(config.mesh, data=data, fsdp=fsdp)
            yield f"--config.mesh.data={data} --config.mesh.fsdp={fsdp}", dataclasses.replace(config, mesh=mesh)
