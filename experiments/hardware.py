"""Tables of what the papers' sizes need, compiled ahead of time for TPU slices that are not there, for the documents.

    python experiments/hardware.py attention          # docs/planning/attention.json, and its table on the terminal

Results are written as they come, and what a file already has is not compiled again. It needs the extra `plan`.
"""

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from pods_jax.io import write_atomic
from pods_jax.models.decoder import Decoder, init_params
from pods_jax.models.shapes import SHAPES
from pods_jax.parallel import batch_sharding, make_mesh, replicated
from pods_jax.planning.chips import GiB, topology_devices
from pods_jax.planning.step_plan import compiled_memory, overflow

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
    try:
        memory = compiled_memory(lowered.compile(), beside=0)
    except jax.errors.JaxRuntimeError as error:
        memory = overflow(str(error), beside=0)
        if memory is None:
            raise
    return {"model": name, "T": T, "attention": attention, "bytes": memory.temporaries, "fits": memory.fits}


def attention_rows() -> list[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """The identifying values of each row, and what computes it."""
    cells = [(m, T, a) for m in MODELS for T in LENGTHS for a in IMPLEMENTATIONS]
    return [
        ({"model": m, "T": T, "attention": a}, lambda m=m, T=T, a=a: layer_temporaries(m, T, a)) for m, T, a in cells
    ]


def attention_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each model and length, GiB by implementation."""
    by_cell = {(r["model"], r["T"], r["attention"]): r for r in rows}
    lines = [
        "| model | T | " + " | ".join(f"`{a}`" for a in IMPLEMENTATIONS) + " |",
        "|---" * (2 + len(IMPLEMENTATIONS)) + "|",
    ]
    for model in MODELS:
        for T in LENGTHS:
            cells = [_gib(by_cell.get((model, T, a))) for a in IMPLEMENTATIONS]
            lines.append(f"| {model.split('/')[1]} | {T:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _gib(row: dict[str, Any] | None) -> str:
    if row is None:
        return "?"
    return f"{'' if row['fits'] else 'over the chip: '}{row['bytes'] / GiB:.2f}"


# ---------------------------------------------------------------- the command

TABLES = {"attention": (attention_rows, attention_table)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    rows_of, table_of = TABLES[parser.parse_args().table]
    path = FOLDER / f"{parser.parse_args().table}.json"
    known = json.loads(path.read_text()) if path.exists() else []
    for key, compute in rows_of():
        if not any(key.items() <= row.items() for row in known):
            known.append(compute())
            write_atomic(path, json.dumps(known, indent=1) + "\n")
            print(known[-1], flush=True)
    print(table_of(known))


if __name__ == "__main__":
    main()
