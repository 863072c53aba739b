"""Tables of what the papers' sizes need, compiled ahead of time for TPU slices that are not there, for the documents.

    python experiments/hardware.py attention    # docs/planning/attention.json, and its table on the terminal
    python experiments/hardware.py slices       # docs/planning/slices.json: the smallest slice of each config
    python experiments/hardware.py layouts      # docs/planning/layouts.json: what an update sends, by its layout

Results are written as they come, and what a file already has is not compiled again. It needs the extra `plan`.
"""

import argparse
import dataclasses
import functools
import json
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from pods_jax.config.load import load_config
from pods_jax.config.schema import Config, default_config, from_mapping
from pods_jax.config.validate import validate_on_devices
from pods_jax.errors import UserError
from pods_jax.io import write_atomic
from pods_jax.models.decoder import Decoder, init_params
from pods_jax.models.shapes import SHAPES
from pods_jax.parallel import batch_sharding, make_mesh, make_meshes, num_shards, replicated
from pods_jax.planning.chips import CHIPS, GiB, topology_devices
from pods_jax.planning.generation import FIRST_TURN, LATER_TURN
from pods_jax.planning.memory_traffic import moved_bytes
from pods_jax.planning.rounds import largest_round
from pods_jax.planning.run_shapes import device_bytes, run_shapes
from pods_jax.planning.step_plan import Phase, compiled_memory, overflow, plan_step

FOLDER = Path(__file__).parents[1] / "docs" / "planning"

# ---------------------------------------------------------------- attention

MODELS = ("Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen3-4B-Base", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B")
LENGTHS = (1024, 4096, 8192, 16_384)
IMPLEMENTATIONS = ("whole", "chunked", "splash")
PROMPT = 2048
ONE_CHIP = "v5p:1x1x1"


def layer_temporaries(name: str, T: int, attention: str) -> dict[str, Any]:
    """Temporaries of a layer's forward and backward pass over a prompt and one rollout of T tokens, on a v5p.

    The layer is recomputed in the backward pass, in bfloat16. Where the chip's memory is too small, `fits` is False and
    the bytes are all that the compiler asked for.
    """
    mesh = make_mesh(devices=topology_devices(ONE_CHIP))
    config = dataclasses.replace(SHAPES[name], num_hidden_layers=1, vocab_size=128, max_position_embeddings=1 << 20)
    model = Decoder(config, attention=attention, remat="full", activations=batch_sharding(mesh))

    def total(params: Any, *rollouts: Any) -> jax.Array:
        return model.apply({"params": params}, *rollouts, method="group_hidden").astype(jnp.float32).sum()

    def shape(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated(mesh))

    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0), "bfloat16"))
    rollouts = [jax.ShapeDtypeStruct(dims, "int32") for dims in ((1, PROMPT), (1,), (1, 1, T))]
    lowered = jax.jit(jax.grad(total)).lower(*jax.tree.map(shape, (params, *rollouts)))
    row = {"model": name, "T": T, "attention": attention}
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        memory = overflow(str(error), beside=0)
        if memory is None:
            raise
        return row | {"bytes": memory.temporaries, "fits": False, "moved_bytes": 0.0}
    memory = compiled_memory(compiled, beside=0)
    return row | {"bytes": memory.temporaries, "fits": True, "moved_bytes": moved_bytes(compiled.as_text())}


def attention_rows() -> list[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """The identifying values of each row, and what computes it."""
    cells = [(m, T, a) for m in MODELS for T in LENGTHS for a in IMPLEMENTATIONS]
    return [({"model": m, "T": T, "attention": a}, functools.partial(layer_temporaries, m, T, a)) for m, T, a in cells]


def attention_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each model and length; GiB of temporaries and GB moved, by implementation."""
    by_cell = {(r["model"], r["T"], r["attention"]): r for r in rows}
    lines = [
        "| model | T | " + " | ".join(f"`{a}`" for a in IMPLEMENTATIONS) + " |",
        "|---" * (2 + len(IMPLEMENTATIONS)) + "|",
    ]
    for model in (m for m in MODELS if any(row["model"] == m for row in rows)):
        for T in LENGTHS:
            cells = [_temporaries(by_cell.get((model, T, a))) for a in IMPLEMENTATIONS]
            lines.append(f"| {model.split('/')[1]} | {T:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _temporaries(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not compiled"
    if not row["fits"]:
        return f"more than the chip: {row['bytes'] / GiB:.0f} GiB"
    moved = f", {row['moved_bytes'] / 1e9:.1f} GB" if "moved_bytes" in row else ""
    return f"{row['bytes'] / GiB:.2f} GiB{moved}"


# ---------------------------------------------------------------- slices

CONFIGS = (
    "pilot_commit/deepmath_1p5b.py:pilot_commit", "pilot_commit/polaris_4b.py:pilot_commit",
    "pilot_commit/polaris_8b.py:pilot_commit", "pilot_commit/polaris_14b.py:pilot_commit",
    "planning.py:qwen2.5-3b-lora", "planning.py:llama-3.2-3b", "planning.py:qwen2.5-7b",
    "paper/gsm8k_qwen3b_full.py:pods", "paper/gsm8k_qwen7b_full.py:pods",
    "paper/gsm8k_qwen3b_lora.py:pods", "paper/gsm8k_llama3b_lora.py:pods", "paper/math_qwen3b_lora.py:pods",
    "paper/sciknoweval_chemistry.py:pods", "smollm2_chain_sum.py:chain_sum", "smollm2_calculator.py", "own_data.py",
    "mixed.py:pilot_commit", "demo.py:pods",
)  # fmt: skip
"""Files in configs/ with an argument."""

SLICES = (
    "v5e:1x1", "v5e:2x2", "v5p:1x1x1", "v5e:4x2", "v5e:4x4", "v5p:2x2x1", "v5e:4x8", "v5p:2x2x2", "v5e:8x8",
    "v5p:2x2x4", "v5p:4x4x4",
)  # fmt: skip
"""By the memory of all their chips together."""

ORDER = ("update", "scoring", "rescoring", *FIRST_TURN, *LATER_TURN)
"""Programs, those that are soonest compiled first."""


def smallest_slice(spec: str) -> dict[str, Any]:
    """The first of SLICES on which the config fits, with the plan's numbers of each of its programs."""
    config = load_config(str(FOLDER.parents[1] / "configs" / spec))
    for topology in SLICES:
        print(f"{spec} on {topology}", flush=True)
        phases = _fitting(config, topology)
        if phases is not None:
            return {
                "config": spec, "T": config.rollout.max_completion_length, "slice": topology,
                "rollouts": sum(largest_round(config)), "phases": phases,
            }  # fmt: skip
    return {"config": spec, "T": config.rollout.max_completion_length, "slice": None, "phases": {}}


def _fitting(config: Config, topology: str) -> dict[str, Any] | None:
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


def slice_rows() -> list[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """The identifying values of each row, and what computes it."""
    return [({"config": spec}, functools.partial(smallest_slice, spec)) for spec in CONFIGS]


def slice_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each config."""
    lines = [
        "| config | model | T | rollouts a round | smallest slice | peak, GiB | seconds at the least, by phase |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: CONFIGS.index(row["config"])):
        model = load_config(str(FOLDER.parents[1] / "configs" / row["config"])).model.path or "from scratch"
        peak = max((phase["peak_bytes"] for phase in row["phases"].values()), default=0) / GiB
        phases = ", ".join(f"{name} {phase['time_s']:,.3g} ({phase['bound']})" for name, phase in row["phases"].items())
        lines.append(
            f"| `{row['config']}` | {model.split('/')[-1]} | {row['T']:,} | {row['rollouts']:,} | `{row['slice']}` "
            f"| {peak:.1f} | {phases} |"
        )
    return "\n".join(lines)


# ---------------------------------------------------------------- layouts

LAYOUTS = (
    ("v5p:2x2x2", 1, 8, -1.0), ("v5p:2x2x2", 2, 4, -1.0), ("v5p:2x2x4", 1, 16, -1.0), ("v5p:2x2x4", 2, 8, -1.0),
    ("v5e:4x2", 1, 8, -1.0), ("v5p:2x2x2", 1, 8, 0.0),
)  # fmt: skip
"""Slice, `mesh.data`, `mesh.fsdp`, and XLA's effort: -1 is that of plans, 0 the usual one."""

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


def update_traffic(topology: str, data: int, fsdp: int, effort: float) -> dict[str, Any]:
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


def layout_rows() -> list[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """The identifying values of each row, and what computes it."""
    names = ("slice", "data", "fsdp", "effort")
    return [(dict(zip(names, row, strict=True)), functools.partial(update_traffic, *row)) for row in LAYOUTS]


def layout_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each layout, MiB by kind of collective."""
    lines = [f"| slice | `data`, `fsdp` | effort | {' | '.join(KINDS)} | sum |", "|---" * (4 + len(KINDS)) + "|"]
    for row in rows:
        sent = [row["sent_bytes"].get(kind, 0.0) / 2**20 for kind in KINDS]
        effort = "least" if row["effort"] < 0 else "normal"
        cells = " | ".join(f"{mib:,.0f}" for mib in (*sent, sum(sent)))
        lines.append(f"| `{row['slice']}` | {row['data']}, {row['fsdp']} | {effort} | {cells} |")
    return "\n".join(lines)


# ---------------------------------------------------------------- the command

TABLES = {
    "attention": (attention_rows, attention_table),
    "slices": (slice_rows, slice_table),
    "layouts": (layout_rows, layout_table),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--only", default="", help="rows of which this is a part, of the model or the config")
    args = parser.parse_args()
    rows_of, table_of = TABLES[args.table]
    path = FOLDER / f"{args.table}.json"
    known = json.loads(path.read_text()) if path.exists() else []
    for key, compute in rows_of():
        if args.only in next(iter(key.values())) and not any(key.items() <= row.items() for row in known):
            known.append(compute())
            write_atomic(path, json.dumps(known, indent=1) + "\n")
            print(known[-1], flush=True)
    print(table_of(known))


if __name__ == "__main__":
    main()
