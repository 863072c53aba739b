"""Bytes that a token of all rollouts moves in memory, beside the least possible."""

import dataclasses
import functools

import jax
import numpy as np

from hardware.table import Cell, Numbers
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.shapes import SHAPES
from pods_jax.parallel import batch_sharding, make_mesh, replicated
from pods_jax.planning import flops
from pods_jax.planning.chips import CHIPS, topology_devices
from pods_jax.planning.generation import lower_last_chunk
from pods_jax.planning.memory_traffic import moved_bytes
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


def token_bytes(topology: str, rows: int, draw: str) -> Numbers:
    """Bytes that decoding one token of every rollout moves, as a mean over the chunks after the first.

    Programs with 2 and with 4 layers are compiled, for the last chunk; what lies between them is that of two layers.
    Earlier chunks have a smaller cache, of which each is read whole.
    """
    c = SHAPES[MODEL]
    room = make_room([n] * (rows // n), kv_bytes(c, "bfloat16"), S, T, 1, C, None)
    two, four = (_program_bytes(topology, layers, rows, room, draw) for layers in (2, 4))
    last = two + (c.num_hidden_layers - 2) * (four - two) / 2
    capacities = [room.capacity(start + C, T) for start in range(C, T, C)]
    spared = rows * kv_bytes(c, "bfloat16") * (T - np.mean(capacities))
    return {
        "slice": topology, "rows": rows, "draw": draw, "moved_bytes": last - spared, "least_bytes": least_bytes(c, rows)
    }  # fmt: skip


def least_bytes(c: ModelConfig, rows: int) -> float:
    """Bytes that must be read: the matrices and the head, each prompt once, and each rollout's tokens, as a mean."""
    weights = c.num_hidden_layers * flops.layer_matrix_entries(c) + c.hidden_size * c.vocab_size
    tokens = rows // n * S + rows * (C + T) / 2
    return 2 * weights + kv_bytes(c, "bfloat16") * tokens


def _program_bytes(topology: str, layers: int, rows: int, room: Room, draw: str) -> float:
    mesh = make_mesh(devices=topology_devices(topology))
    jax.config.update("jax_exec_time_optimization_effort", 0.0)  # with less, fewer arrays stay on the chip
    config = dataclasses.replace(SHAPES[MODEL], num_hidden_layers=layers)
    shapes = jax.eval_shape(lambda: unstacked(init_params(Decoder(config), jax.random.key(0), "bfloat16")))
    weights = jax.tree.map(lambda x: x.update(sharding=replicated(mesh)), shapes)
    [one] = longest_passes(room, [n] * (rows // n))
    drawing = Drawing(greedy=False, eos_ids=(0, 1), **({"top_k": 0, "top_p": 1.0} | DRAWS[draw]))
    lowered = lower_last_chunk(config, weights, one, room, batch_sharding(mesh), drawing=drawing)
    return moved_bytes(lowered.compile().as_text(), C) / C


def cells() -> list[Cell]:
    names = ("slice", "rows", "draw")
    all_of = [(s, r, d) for d in DRAWS for s in SLICES for r in ROWS]
    return [Cell(dict(zip(names, cell, strict=True)), functools.partial(token_bytes, *cell)) for cell in all_of]


def markdown(rows: list[Numbers]) -> str:
    """A row for each compilation: GB moved, the least, their ratio, and tokens a second at the peak bandwidth."""
    lines = ["| slice | rollouts | draw | GB a token | the least | ratio | tokens/s at most |", "|---" * 7 + "|"]
    for row in rows:
        moved, least = row["moved_bytes"], row["least_bytes"]
        rate = row["rows"] * CHIPS[row["slice"].partition(":")[0]].hbm_bytes_per_s / moved
        lines.append(
            f"| `{row['slice']}` | {row['rows']} | {row['draw']} | {moved / 1e9:.2f} | {least / 1e9:.2f} "
            f"| {moved / least:.2f} | {rate:,.0f} |"
        )
    return "\n".join(lines)
