"""Phases of a step: seconds, arithmetic and growth."""

import pytest
from benchmark import step_phases
from benchmark.workload import BENCHMARK_SHAPES

from pods_jax.config.schema import from_mapping


def test_phases_of_a_config(tiny):
    tiny.optimizer.micro_batch_size_per_device = 1
    config, _ = from_mapping(tiny)
    with step_phases.started(config) as run:
        sizes = step_phases.config_sizes(run)._replace(P=2, n=2, m=2)
        seconds = step_phases.measure(run, sizes, repeats=1)
        rows = step_phases.table_rows(run, sizes, seconds)
    assert list(seconds) == ["prefill", "decode", "verify", "score", "update", "sync"]
    assert all(s > 0 for phase, s in seconds.items() if phase != "decode")  # that one is a difference
    [update] = [row for row in rows if row["phase"] == "update"]
    assert update["tokens_per_s"] == pytest.approx(2 * 2 * sizes.T / seconds["update"])
    assert 0 < update["of_peak"] < 1


def test_exponents():
    assert step_phases.exponent([2, 4, 8], [3 * x**1.5 for x in (2, 4, 8)]) == pytest.approx(1.5)


def test_prefill_and_decoding_cost_what_a_generation_does_and_an_update_three_forward_passes():
    """One group of 4, prompts of 16 tokens, completions of 8; counted by hand for 2 layers of 32 dimensions."""
    c = BENCHMARK_SHAPES["tiny"]
    matrices = 2 * (32 * 64 + 32 * 32 + 3 * 32 * 64)
    work = step_phases.phase_flops(c, step_phases.Sizes(P=1, n=4, m=4, S=16, T=8))

    def attention(queries, keys):
        return 2 * 2 * 32 * queries * keys * 2

    prompt = 2 * matrices * 16 + attention(16, 16)
    decoded = 2 * matrices * 4 * 7  # the first token needs only the head
    scored = 2 * matrices * 4 * 8
    head = 2 * 32 * 256
    assert work["prefill"] == prompt + 4 * head
    assert work["decode"] == decoded + attention(4 * 7, 16 + 8) + 4 * 7 * head
    assert work["score"] == prompt + scored + attention(4 * 8, 16 + 8) + 4 * 8 * head
    assert work["update"] == 3 * work["score"]
