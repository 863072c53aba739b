"""Bytes that an update sends between devices, by its layout."""

import dataclasses
import functools
import unittest.mock

import jax

from hardware.table import Cell, Numbers
from pods_jax.config.schema import default_config, from_mapping
from pods_jax.models.shapes import SHAPES
from pods_jax.planning.chips import topology_devices
from pods_jax.planning.step_plan import plan_step

LAYOUTS = (
    ("v5p:2x2x2", 1, 8, -1.0), ("v5p:2x2x2", 2, 4, -1.0), ("v5p:2x2x4", 1, 16, -1.0), ("v5p:2x2x4", 2, 8, -1.0),
    ("v5e:4x2", 1, 8, -1.0), ("v5p:2x2x2", 1, 8, 0.0),
)  # fmt: skip
"""Slice, `mesh.data`, `mesh.fsdp`, and XLA's effort: -1 is that of plans, 0 the usual one."""

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


def update_traffic(topology: str, data: int, fsdp: int, effort: float) -> Numbers:
    """Bytes that a device sends in an update of 4 layers of Qwen2.5-3B, two micro-batches of 4 rollouts a device."""
    devices = topology_devices(topology)
    jax.config.update("jax_exec_time_optimization_effort", effort)
    four_layers = dataclasses.replace(SHAPES["Qwen/Qwen2.5-3B-Instruct"], num_hidden_layers=4)
    c = default_config()
    c.update_from_flattened_dict({
        "model.path": "Qwen/Qwen2.5-3B-Instruct", "model.remat": "full", "model.compute_dtype": "bfloat16",
        "mesh.data": data, "mesh.fsdp": fsdp, "rollout.num_prompts": data * fsdp, "rollout.num_generations": 8,
        "rollout.max_prompt_length": 256, "rollout.max_completion_length": 256, "selection.num_kept": 8,
        "optimizer.micro_batch_size_per_device": 4,
    })  # fmt: skip
    config, _ = from_mapping(c)
    with unittest.mock.patch.dict(SHAPES, {config.model.path: four_layers}):
        [phase] = plan_step(config, topology, devices, print, ("update",)).phases
    sent = {kind: traffic.sent_bytes for kind, traffic in phase.traffic.items()}
    return {"slice": topology, "data": data, "fsdp": fsdp, "effort": effort, "sent_bytes": sent}


def cells() -> list[Cell]:
    names = ("slice", "data", "fsdp", "effort")
    return [Cell(dict(zip(names, row, strict=True)), functools.partial(update_traffic, *row)) for row in LAYOUTS]


def markdown(rows: list[Numbers]) -> str:
    """Markdown: a row for each layout, MiB by kind of collective."""
    lines = [f"| slice | `data`, `fsdp` | effort | {' | '.join(KINDS)} | sum |", "|---" * (4 + len(KINDS)) + "|"]
    for row in rows:
        sent = [row["sent_bytes"].get(kind, 0.0) / 2**20 for kind in KINDS]
        effort = "least" if row["effort"] < 0 else "normal"
        shown = " | ".join(f"{mib:,.0f}" for mib in (*sent, sum(sent)))
        lines.append(f"| `{row['slice']}` | {row['data']}, {row['fsdp']} | {effort} | {shown} |")
    return "\n".join(lines)
