"""Stages of the study of a pretrained language model: for each setting its step costs, and then its trials."""

import dataclasses
import functools
from pathlib import Path

from study.cost_files import measure_once, read_costs
from study.extents import Extent, Setting, texts
from study.step_costs import Definitions, summary_of_steps
from study.trial_runs import make_trials
from study.trial_tables import StepCosts

VARIED = {"reward.parts": {"coin": 1.0}, "reward.functions": {"coin": "study.coin:coin"}}
"""Config keys under which the rewards of every group vary, so that every gradient is computed."""


def make_smollm2(extent: Extent, workdir: Path, records: Path, cost_rounds: int, workers: int) -> dict[str, str]:
    """Makes all that has no record; returns the problems of the runs that failed, by name.

    Args:
      cost_rounds: timed steps of each method.
      workers: runs at a time, each on its share of the cores, and with some 4 GB of memory.
    """
    failed = {}
    measure = functools.partial(summary_of_steps, rounds=cost_rounds)
    for setting in extent.settings:
        measure_once(_cost_file(setting, records), _timed(extent, setting), measure)
        failed |= make_trials(dataclasses.replace(extent, settings=[setting]), workdir, records, workers)
    return failed


def step_costs(extent: Extent, records: Path) -> dict[str, StepCosts]:
    """Costs of a step by setting, as far as they were measured.

    Raises:
      UserError: they were measured with another definition of the study.
    """
    measured = [setting for setting in extent.settings if _cost_file(setting, records).is_file()]
    return {s.name: read_costs(_cost_file(s, records), _timed(extent, s))["seconds"] for s in measured}


def _cost_file(setting: Setting, records: Path) -> Path:
    return records / "costs" / f"{setting.name}.json"


def _timed(extent: Extent, setting: Setting) -> Definitions:
    """The methods whose steps are timed.

    A step of an allocator has as many rounds as rewards decide, and so no cost of its own: such methods are left out.
    """
    timed = [name for name, method in extent.methods.items() if "allocation.name" not in method.keys]
    return {name: (setting.spec, *texts(extent.keys_of(setting.name, name) | VARIED)) for name in timed}
