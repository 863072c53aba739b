"""The simulation of passes: its sums are those of steps that can be counted by hand."""

import numpy as np
import pytest
from benchmark import simulated_passes as passes

from pods_jax.models.decoder import ModelConfig
from pods_jax.planning.chips import Chip
from pods_jax.rollout.layout import block_tokens
from pods_jax.rollout.passes import make_room

CONFIG = ModelConfig(16, 8, 8, 1, 2, 1, 4)
READS = Chip(flops_per_s=np.inf, hbm_bytes=0, hbm_bytes_per_s=1.0, link_bytes_per_s=0.0, source="")
"""Its seconds are the bytes that are read."""
TOKEN = 16
"""Bytes of a token's keys and values: 2 of 4 numbers of 2 bytes."""


def test_a_pass_reads_weights_and_what_its_live_blocks_hold():
    """Two blocks of four, chunks of 2 tokens: eight rollouts live for two tokens, one for six."""
    room = make_room([4, 4], TOKEN, 8, 6, 1, 2, None)
    lengths = np.array([[1, 2, 2, 6], [2, 2, 2, 2]])
    (whole,) = passes.whole_passes(room, [4, 4])
    entries = 3 * 8 * 8 + 2 * 8 * 8 + 2 * 8 * 4
    weights = 2 * (entries + 16 * 8)
    steps = [weights + TOKEN * 2 * (4 * 2 + 8), weights + TOKEN * (4 * 4 + 8), weights + TOKEN * (4 * 6 + 8)]
    assert passes.seconds(CONFIG, READS, room, whole, lengths) == pytest.approx(2 * sum(steps))


def test_all_rollouts_are_in_passes_until_they_end():
    lengths = np.random.default_rng(0).integers(1, 25, (3, 8))
    room = make_room([8] * 3, TOKEN, 8, 24, 1, 2, 2 * TOKEN * block_tokens(4, 8, 24))
    spans = {}
    for one in passes.made_passes(room, lengths):
        real = one.layout.rows >= 0
        groups = np.broadcast_to(one.layout.groups[:, None], real.shape)
        for place in zip(groups[real].tolist(), one.layout.rows[real].tolist(), strict=True):
            spans.setdefault(place, []).append((one.start, one.goal))
    assert len(spans) == 24
    for place, found in spans.items():
        assert [start for start, _ in found] == [0, *(goal for _, goal in found[:-1])]
        assert found[-1][0] < lengths[place] <= found[-1][1]


def test_milestones_save_time_where_lengths_have_a_tail():
    for row in passes.table_rows("Qwen/Qwen2.5-Math-1.5B", "v5p", 4, 32, 16, 128)[:4]:
        assert row["ratio"] > 1.5
        assert row["ratio"] == pytest.approx(row["to_end_s"] / row["to_milestones_s"])
