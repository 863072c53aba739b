"""The time that passes to milestones save on an accelerator, simulated: the least that bytes and arithmetic allow.

No model runs. Lengths are lognormal with sigma = 1 and cut at T; passes, blocks, chunks and capacities are those of the
sampler; a program takes the longer of the times for its arithmetic and for its weights and cache at the chip's peaks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pods_jax.buckets import ceil_div
from pods_jax.models.decoder import ModelConfig
from pods_jax.models.shapes import SHAPES
from pods_jax.planning import flops
from pods_jax.planning.chips import CHIPS, Chip
from pods_jax.rollout.layout import block_size, compacted, kv_bytes, layouts
from pods_jax.rollout.passes import Pass, Room, make_room

CASES = ((8192, 800), (8192, 1600), (2048, 300), (512, 64), (2048, 10**9))
"""Limits T, and mean lengths; the last are all of full length."""


def table_rows(model: str, chip: str, num_prompts: int, n: int, fitting: int, S: int) -> list[dict[str, Any]]:
    """A row for each of CASES: seconds with passes to T and to milestones. fitting: rollouts with room at length T."""
    config = SHAPES[model]
    token_bytes = kv_bytes(config, "bfloat16")
    rng = np.random.default_rng(0)
    rows = []
    for T, mean in CASES:
        lengths = np.minimum(np.ceil(mean * rng.lognormal(-0.5, 1.0, (num_prompts, n))), T)
        budget = fitting // 4 * (4 * T + 2 * S) * token_bytes
        room = make_room([n] * num_prompts, token_bytes, S, T, 1, 64, budget)
        whole = sum(seconds(config, CHIPS[chip], room, one, lengths) for one in whole_passes(room, [n] * num_prompts))
        parts = sum(seconds(config, CHIPS[chip], room, one, lengths) for one in made_passes(room, lengths))
        case = f"T = {T}, " + (f"mean {lengths.mean():.0f}" if mean < T else "all of full length")
        rows.append({"case": case, "to_end_s": whole, "to_milestones_s": parts, "ratio": whole / parts})
    return rows


def whole_passes(room: Room, counts: Sequence[int]) -> list[Pass]:
    """Passes that all go to T, each with room for so many tokens of every rollout."""
    T = room.max_new_tokens
    size = block_size(counts, room.limit)
    found = layouts([np.arange(count) for count in counts], size, room.devices, room.blocks(size, T))
    return [Pass(layout, 0, T) for layout in found]


def made_passes(room: Room, lengths: np.ndarray) -> Iterator[Pass]:
    """The passes of a call whose rollouts have these lengths [P, n]."""
    start = 0
    while start < room.max_new_tokens and (lengths > start).any():
        found = room.passes([np.flatnonzero(group > start) for group in lengths], start)
        yield from found
        start = found[0].goal


def seconds(c: ModelConfig, chip: Chip, room: Room, one: Pass, lengths: np.ndarray) -> float:
    """The least time of a pass, from its prompts to its last token."""
    layout, start, goal = one
    found = _again_s(c, chip, room, one) if start else _prompts_s(c, chip, room, one)
    for t in range(start, goal, room.chunk_size):
        live = (layout.rows >= 0) & (lengths[layout.groups[:, None], layout.rows] > t)
        if not live.any():
            break
        layout = compacted(layout, live, room.devices).layout
        capacity = room.capacity(t + room.chunk_size, goal)
        tokens = min(room.chunk_size, goal - t)
        found += tokens * _step_s(c, chip, room, layout.rows.shape, 1, capacity)
    return found


def _prompts_s(c: ModelConfig, chip: Chip, room: Room, one: Pass) -> float:
    return flops.prefill_flops(c, len(one.layout.prompts), room.prompt_length) / chip.flops_per_s


def _again_s(c: ModelConfig, chip: Chip, room: Room, one: Pass) -> float:
    """The prompts, and the tokens that were there, some at a time."""
    width = room.width(one, c.num_attention_heads)
    step = _step_s(c, chip, room, one.layout.rows.shape, width, room.resumed(one))
    return _prompts_s(c, chip, room, one) + ceil_div(one.start, width) * step


def _step_s(c: ModelConfig, chip: Chip, room: Room, shape: tuple[int, int], width: int, capacity: int) -> float:
    """`width` tokens of every rollout in blocks of this shape."""
    blocks, g = shape
    tokens = blocks * g * width
    S = room.prompt_length
    weights = 2 * (c.num_hidden_layers * flops.layer_matrix_entries(c) + c.vocab_size * c.hidden_size)
    read = weights + kv_bytes(c, "bfloat16") * blocks * (g * capacity + S)
    arithmetic = flops.token_flops(c, tokens) + flops.attention_flops(c, tokens, S + capacity)
    return max(read / chip.hbm_bytes_per_s, arithmetic / chip.flops_per_s)
