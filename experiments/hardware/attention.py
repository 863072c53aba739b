"""Memory of one layer's forward and backward pass, by implementation of attention."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from hardware.table import Cell, Numbers
from pods_jax.models.decoder import Decoder, init_params
from pods_jax.models.shapes import SHAPES
from pods_jax.parallel import batch_sharding, make_mesh, replicated
from pods_jax.planning.chips import GiB, topology_devices
from pods_jax.planning.memory_traffic import moved_bytes
from pods_jax.planning.step_plan import compiled_memory, overflow

MODELS = ("Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen3-4B-Base", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B")
LENGTHS = (1024, 4096, 8192, 16_384)
IMPLEMENTATIONS = ("whole", "chunked", "splash")
PROMPT = 2048
ONE_CHIP = "v5p:1x1x1"


def layer_temporaries(name: str, T: int, attention: str) -> Numbers:
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


def cells() -> list[Cell]:
    all_of = [(m, T, a) for m in MODELS for T in LENGTHS for a in IMPLEMENTATIONS]
    return [
        Cell({"model": m, "T": T, "attention": a}, functools.partial(layer_temporaries, m, T, a)) for m, T, a in all_of
    ]


def markdown(rows: list[Numbers]) -> str:
    """Markdown: a row for each model and length; GiB of temporaries and GB moved, by implementation."""
    by_cell = {(r["model"], r["T"], r["attention"]): r for r in rows}
    lines = [
        "| model | T | " + " | ".join(f"`{a}`" for a in IMPLEMENTATIONS) + " |",
        "|---" * (2 + len(IMPLEMENTATIONS)) + "|",
    ]
    for model in (m for m in MODELS if any(row["model"] == m for row in rows)):
        for T in LENGTHS:
            shown = [_temporaries(by_cell.get((model, T, a))) for a in IMPLEMENTATIONS]
            lines.append(f"| {model.split('/')[1]} | {T:,} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _temporaries(row: Numbers | None) -> str:
    if row is None:
        return "not compiled"
    if not row["fits"]:
        return f"more than the chip: {row['bytes'] / GiB:.0f} GiB"
    moved = f", {row['moved_bytes'] / 1e9:.1f} GB" if "moved_bytes" in row else ""
    return f"{row['bytes'] / GiB:.2f} GiB{moved}"
