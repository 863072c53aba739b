"""Bytes that a token of all rollouts moves in memory, beside the least possible."""

import dataclasses
import functools

import jax
import numpy as np

from hardware.table import Cell, Numbers
from pods_jax.buckets import ceil_div
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.shapes import SHAPES
from pods_jax.parallel import batch_sharding, make_mesh, replicated
from pods_jax.planning import flops
from pods_jax.planning.chips import CHIPS, topology_devices
from pods_jax.planning.generation import lower_last_chunk
from pods_jax.planning.memory_traffic import moved_bytes
from pods_jax.rollout.attention_kernel import TILE
from pods_jax.rollout.attention_kernel import attention as named_attention
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import kv_bytes
from pods_jax.rollout.passes import Room, longest_passes, make_room
from pods_jax.rollout.weights import unstacked

MODEL = "Qwen/Qwen2.5-Math-1.5B"
S, T, C, n = 256, 1024, 64, 16
"""Tokens of prompt and completion, of a chunk, and rollouts of a prompt."""

ROWS = (64, 128, 256, 512)
SLICES = ("v5e:1x1", "v5p:1x1x1")
DRAWS = {"plain": {}, "top-k 50, top-p 0.95": {"top_k": 50, "top_p": 0.95}}

CAPACITIES = {"whole": (256, 512, 1024), "kernel": (512, 1024)}
"""Of the caches that are compiled, by attention; bytes are taken as linear in between. The kernel's are linear."""


def token_bytes(topology: str, rows: int, draw: str, attention: str) -> Numbers:
    """Bytes that decoding one token of every rollout moves, as a mean over the chunks after the first.

    Programs with 2 and with 4 layers are compiled; what lies between them is that of two layers.
    """
    c = SHAPES[MODEL]
    room = make_room([n] * (rows // n), kv_bytes(c, "bfloat16"), S, T, 1, C, None)

    def moved(capacity: int) -> float:
        two, four = (_program_bytes(topology, layers, rows, room, draw, attention, capacity) for layers in (2, 4))
        return two + (c.num_hidden_layers - 2) * (four - two) / 2

    capacities = CAPACITIES[attention]
    found = np.interp(_tokens_read(room, attention), capacities, [moved(capacity) for capacity in capacities])
    return {
        "slice": topology, "rows": rows, "draw": draw, "attention": attention, "moved_bytes": float(found.mean()),
        "least_bytes": least_bytes(c, rows),
    }  # fmt: skip


def _tokens_read(room: Room, attention: str) -> np.ndarray:
    """Tokens of each rollout's cache that are read: the capacity of each chunk; by the kernel whole tiles, as a mean.

    A kernel's operands are counted whole: in a program with a cache of that capacity they are what it reads.
    """
    if attention == "kernel":
        return TILE * np.mean([ceil_div(t, TILE) for t in range(C, T)])
    return np.array([room.capacity(start + C, T) for start in range(C, T, C)])


def least_bytes(c: ModelConfig, rows: int) -> float:
    """Bytes that must be read: the matrices and the head, each prompt once, and each rollout's tokens, as a mean."""
    weights = c.num_hidden_layers * flops.layer_matrix_entries(c) + c.hidden_size * c.vocab_size
    tokens = rows // n * S + rows * (C + T) / 2
    return 2 * weights + kv_bytes(c, "bfloat16") * tokens


def _program_bytes(
    topology: str, layers: int, rows: int, room: Room, draw: str, attention: str, capacity: int
) -> float:
    mesh = make_mesh(devices=topology_devices(topology))
    jax.config.update("jax_exec_time_optimization_effort", 0.0)  # with less, fewer arrays stay on the chip
    config = dataclasses.replace(SHAPES[MODEL], num_hidden_layers=layers)
    shapes = jax.eval_shape(lambda: unstacked(init_params(Decoder(config), jax.random.key(0), "bfloat16")))
    weights = jax.tree.map(lambda x: x.update(sharding=replicated(mesh)), shapes)
    [one] = longest_passes(room, [n] * (rows // n))
    drawing = Drawing(greedy=False, eos_ids=(0, 1), **({"top_k": 0, "top_p": 1.0} | DRAWS[draw]))
    sharding = batch_sharding(mesh)
    options = {"drawing": drawing, "attention": named_attention(attention, sharding), "capacity": capacity}
    lowered = lower_last_chunk(config, weights, one, room, sharding, **options)
    return moved_bytes(lowered.compile().as_text(), C) / C


def cells() -> list[Cell]:
    names = ("slice", "rows", "draw", "attention")
    all_of = [(s, r, d, a) for d in DRAWS for s in SLICES for r in ROWS for a in CAPACITIES]
    return [Cell(dict(zip(names, cell, strict=True)), functools.partial(token_bytes, *cell)) for cell in all_of]


def markdown(rows: list[Numbers]) -> str:
    """A row for each compilation: GB moved, the least, their ratio, and tokens a second at the peak bandwidth."""
    head = "| slice | rollouts | draw | attention | GB a token | the least | ratio | tokens/s at most |"
    lines = [head, "|---" * 8 + "|"]
    for row in rows:
        moved, least = row["moved_bytes"], row["least_bytes"]
        rate = row["rows"] * CHIPS[row["slice"].partition(":")[0]].hbm_bytes_per_s / moved
        lines.append(
            f"| `{row['slice']}` | {row['rows']} | {row['draw']} | {row['attention']} | {moved / 1e9:.2f} "
            f"| {least / 1e9:.2f} | {moved / least:.2f} | {rate:,.0f} |"
        )
    return "\n".join(lines)
