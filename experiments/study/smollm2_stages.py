"""Stages of the study of a pretrained language model: for each setting its step costs, and then its trials."""

import dataclasses
import json
from pathlib import Path

from pods_jax.config.load import load_config
from pods_jax.io import make_folder, read_json, write_atomic
from study.extents import Extent, Setting
from study.step_costs import summary_of_steps
from study.trial_runs import make_trials
from study.trial_tables import StepCosts

VARIED = {"reward.parts": {"coin": 1.0}, "reward.functions": {"coin": "study.coin:coin"}}
"""Config keys under which the rewards of every group vary, so that every gradient is computed."""


def make_smollm2(extent: Extent, workdir: Path, records: Path, cost_rounds: int) -> dict[str, str]:
    """Makes all that has no record; returns the problems of the runs that failed, by name.

    cost_rounds: timed steps of each method.
    """
    failed = {}
    for setting in extent.settings:
        _measure_costs(extent, setting, records, cost_rounds)
        failed |= make_trials(dataclasses.replace(extent, settings=[setting]), workdir, records)
    return failed


def step_costs(records: Path) -> dict[str, StepCosts]:
    """Costs of a step by setting, as far as they were measured."""
    return {file.stem: read_json(file)["seconds"] for file in sorted((records / "costs").glob("*.json"))}


def _measure_costs(extent: Extent, setting: Setting, records: Path, rounds: int) -> None:
    """Writes the seconds of a setting's steps, in turns, unless they are there.

    A step of an allocator has as many rounds as rewards decide, and so no cost of its own: such methods are left out.
    """
    file = records / "costs" / f"{setting.name}.json"
    if file.is_file():
        return
    timed = [name for name, method in extent.methods.items() if "allocation.name" not in method.keys]
    keys = {name: extent.keys_of(setting.name, name) | VARIED for name in timed}
    configs = {name: load_config(setting.spec, [f"{k}={v}" for k, v in own.items()]) for name, own in keys.items()}
    print(f"costs    {setting.name}: {len(configs)} methods, which need a quiet machine", flush=True)
    costs = summary_of_steps(configs, rounds, lambda step: None)
    make_folder(file.parent, "folder")
    write_atomic(file, json.dumps(costs, indent=1) + "\n")
