"""Files of step costs, each with the definitions of what was timed: measured once, and read by no other definition."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pods_jax.errors import UserError
from pods_jax.io import make_folder, read_json, write_atomic
from study.step_costs import Definitions


def measure_once(file: Path, definitions: Definitions, measure: Callable[[Definitions], Mapping[str, Any]]) -> None:
    """Writes what `measure` says of the definitions, unless the file is there.

    Raises:
      UserError: as `read_costs`, of a file that is there.
    """
    if file.is_file():
        read_costs(file, definitions)
        print(f"costs    {file} is there; delete it to measure anew", flush=True)
        return
    print(f"costs    {file.stem}: {len(definitions)} configs, which need a quiet machine", flush=True)
    costs = measure(definitions)
    make_folder(file.parent, "folder")
    write_atomic(file, json.dumps({**costs, "definitions": _joined(definitions)}, indent=1) + "\n")


def read_costs(file: Path, definitions: Definitions) -> dict[str, Any]:
    """What was measured.

    Raises:
      UserError: the file is not there or damaged, or its steps were of configs with other definitions.
    """
    found = read_json(file)
    if found.get("definitions") != _joined(definitions):
        raise UserError(f"{file} was measured with another definition of the study; delete it to measure anew")
    return found


def _joined(definitions: Definitions) -> dict[str, str]:
    return {name: " ".join(definition) for name, definition in definitions.items()}
