"""The smallest slice on which each config fits as it stands."""

import functools
from pathlib import Path
from typing import Any

from hardware.table import Cell, Numbers
from pods_jax.config.load import load_config
from pods_jax.config.schema import Config
from pods_jax.config.validate import validate_on_devices
from pods_jax.errors import UserError
from pods_jax.parallel import make_meshes, num_shards
from pods_jax.planning.chips import CHIPS, GiB, topology_devices
from pods_jax.planning.generation import FIRST_TURN, LATER_TURN
from pods_jax.planning.rounds import largest_round
from pods_jax.planning.run_shapes import device_bytes, run_shapes
from pods_jax.planning.step_plan import Phase, plan_step

CONFIGS_FOLDER = Path(__file__).parents[2] / "configs"

CONFIGS = (
    "pilot_commit/deepmath_1p5b.py:pilot_commit", "pilot_commit/polaris_4b.py:pilot_commit",
    "pilot_commit/polaris_8b.py:pilot_commit", "pilot_commit/polaris_14b.py:pilot_commit",
    "planning.py:qwen2.5-3b-lora", "planning.py:llama-3.2-3b", "planning.py:qwen2.5-7b",
    "paper/gsm8k_qwen3b_full.py:pods", "paper/gsm8k_qwen7b_full.py:pods",
    "paper/gsm8k_qwen3b_lora.py:pods", "paper/gsm8k_llama3b_lora.py:pods", "paper/math_qwen3b_lora.py:pods",
    "paper/sciknoweval_chemistry.py:pods", "smollm2_chain_sum.py:chain_sum", "smollm2_calculator.py", "own_data.py",
    "mixed.py:pilot_commit", "demo.py:pods",
)  # fmt: skip
"""Files in CONFIGS_FOLDER, with an argument."""

SLICES = (
    "v5e:1x1", "v5e:2x2", "v5p:1x1x1", "v5e:4x2", "v5e:4x4", "v5p:2x2x1", "v5e:4x8", "v5p:2x2x2", "v5e:8x8",
    "v5p:2x2x4", "v5p:4x4x4",
)  # fmt: skip
"""By the memory of all their chips together."""

ORDER = ("update", "scoring", "rescoring", "entropies", *FIRST_TURN, *LATER_TURN)
"""Programs, those that are soonest compiled first."""


def smallest_slice(spec: str) -> Numbers:
    """The first of SLICES on which the config fits, with the plan's numbers of each of its programs."""
    config = load_config(str(CONFIGS_FOLDER / spec))
    for topology in SLICES:
        print(f"{spec} on {topology}", flush=True)
        phases = _fitting(config, topology)
        if phases is not None:
            return {
                "config": spec, "T": config.rollout.max_completion_length, "slice": topology,
                "rollouts": sum(largest_round(config)), "phases": phases,
            }  # fmt: skip
    return {"config": spec, "T": config.rollout.max_completion_length, "slice": None, "phases": {}}


def _fitting(config: Config, topology: str) -> Numbers | None:
    """Numbers by program; None where the config's mesh or memory does not fit the slice."""
    devices = topology_devices(topology)
    if not _has_mesh(config, devices) or held_bytes(config, devices) > CHIPS[topology.partition(":")[0]].hbm_bytes:
        return None
    found = {}
    for name in ORDER:
        plan = plan_step(config, topology, devices, print, (name,))
        if plan.phases and not plan.fits:
            return None
        found |= {phase.program.name: _numbers(phase) for phase in plan.phases}
    return found


def _numbers(phase: Phase) -> dict[str, Any]:
    return {
        "peak_bytes": phase.memory.peak, "runs": phase.program.runs, "time_s": phase.time_s, "bound": phase.bound
    }  # fmt: skip


def _has_mesh(config: Config, devices: Any) -> bool:
    """Whether the config's mesh has so many devices, and divides its sizes."""
    try:
        validate_on_devices(config, num_shards(make_meshes(config.mesh, devices)[0]))
    except UserError as error:
        print(error)
        return False
    return True


def held_bytes(config: Config, devices: Any) -> int:
    """The least that a device holds, without compiling: what stays throughout a step, and its gradients."""
    run = run_shapes(config, devices)
    return sum(run.held().values()) + device_bytes(run.state.params)


def cells() -> list[Cell]:
    return [Cell({"config": spec}, functools.partial(smallest_slice, spec)) for spec in CONFIGS]


def markdown(rows: list[Numbers]) -> str:
    """Markdown: a row for each config."""
    lines = [
        "| config | model | T | rollouts a round | smallest slice | peak, GiB | seconds at the least, by phase |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: CONFIGS.index(row["config"])):
        model = load_config(str(CONFIGS_FOLDER / row["config"])).model.path or "from scratch"
        peak = max((phase["peak_bytes"] for phase in row["phases"].values()), default=0) / GiB
        phases = ", ".join(f"{name} {_time(phase)}" for name, phase in row["phases"].items())
        lines.append(
            f"| `{row['config']}` | {model.split('/')[-1]} | {row['T']:,} | {row['rollouts']:,} | `{row['slice']}` "
            f"| {peak:.1f} | {phases} |"
        )
    return "\n".join(lines)


def _time(phase: dict[str, Any]) -> str:
    """Seconds, and what bounds them."""
    time_s = phase["time_s"]
    return (f"{time_s:,.0f}" if time_s >= 100 else f"{time_s:.3g}") + f" ({phase['bound']})"
