"""Files of step costs, each with the definitions of what was timed: measured once, and read by no other definition."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.config.load import load_config
from pods_jax.errors import UserError
from pods_jax.io import make_folder, read_json, write_atomic
from study.step_costs import summary_of_steps

Definitions = Mapping[str, Sequence[str]]
"""By name, the config whose steps are timed: its file, and then its overrides."""


def measure_once(file: Path, definitions: Definitions, rounds: int) -> None:
    """Writes the seconds of the steps, in turns, unless the file is there.

    Args:
      rounds: timed steps of each config.

    Raises:
      UserError: as `read_costs`, of a file that is there.
    """
    if file.is_file():
        read_costs(file, definitions)
        return
    print(f"costs    {file.stem}: {len(definitions)} methods, which need a quiet machine", flush=True)
    configs = {name: load_config(spec, overrides) for name, (spec, *overrides) in definitions.items()}
    costs = summary_of_steps(configs, rounds, lambda step: None) | {"definitions": _joined(definitions)}
    make_folder(file.parent, "folder")
    write_atomic(file, json.dumps(costs, indent=1) + "\n")


def read_costs(file: Path, definitions: Definitions) -> dict[str, dict[str, Any]]:
    """The step costs of each config, as `summary_of_steps` says.

    Raises:
      UserError: the file is not there or damaged, or its steps were of configs with other definitions.
    """
    found = read_json(file)
    if found.get("definitions") != _joined(definitions):
        raise UserError(f"{file} was measured with another definition of the study; delete it to measure anew")
    return found["seconds"]


def _joined(definitions: Definitions) -> dict[str, str]:
    return {name: " ".join(definition) for name, definition in definitions.items()}
