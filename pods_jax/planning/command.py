"""What `experiments/plan.py` does."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from pods_jax.config import Config
from pods_jax.errors import UserError
from pods_jax.folders import make_folder
from pods_jax.planning.chips import topology_devices
from pods_jax.planning.phases import plan_step
from pods_jax.planning.report import print_plan, print_sweep, to_json
from pods_jax.planning.sweep import draw, sweep


def run(
    config: Config, topology: str, symbol: str | None, values: list[int] | None, out: Path | None
) -> dict[str, Any]:
    """Prints a plan, or the curve of a sweep over `symbol`, which is drawn to `out`. Returns the summary.

    Raises:
      UserError: no such topology; `values` or `out` without a symbol; `out` is no place for a PNG.
    """
    if symbol is None and (values or out):
        raise UserError("--values and --out are of a sweep: give --sweep m or --sweep n")
    if out is not None:
        _check_out(out)
    console = Console(highlight=False, soft_wrap=True)
    devices = topology_devices(topology)
    if symbol is None:
        plan = plan_step(config, topology, devices, console.print)
        print_plan(plan, console)
        return to_json(plan)
    curve = sweep(config, symbol, topology, devices, console.print, values and sorted(set(values)))
    print_sweep(curve, console)
    summary = curve._asdict() | {"points": [point._asdict() for point in curve.points]}
    if out is not None:
        out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
        draw(curve, out)
    return summary


def _check_out(out: Path) -> None:
    if out.suffix != ".png" or out.is_dir():
        raise UserError(f"--out {out}: the curve is drawn as a .png file")
    make_folder(out.parent, "--out")
