"""The table of an accelerator, and the bytes that a decoding step must read."""

import numpy as np
from benchmark import accelerator
from benchmark.printing import print_table
from benchmark.workload import BENCHMARK_SHAPES

TINY = BENCHMARK_SHAPES["tiny"]
MATRICES = 2 * (32 * 64 + 32 * 32 + 3 * 32 * 64)  # of 2 layers: q, k and v; o; gate, up and down


def test_an_accelerators_table(capsys):
    rows = accelerator.run(TINY, counts=[2], rows=[2], S=4, T=8, budget_s=600.0, probe_bytes=2**22)
    assert [row["work"] for row in rows] == ["limits", "decode, n = 2", "update, m = 2"]
    assert 0 < rows[2]["of_limit"] < 1
    assert np.isfinite(rows[1]["of_limit"])
    print_table("gpu", rows)
    assert "update, m = 2" in capsys.readouterr().out
    assert len(accelerator.run(TINY, counts=[2], rows=[2], S=4, T=8, budget_s=0.0, probe_bytes=2**22)) == 1


def test_a_decoding_step_reads_weights_and_what_is_cached():
    """bfloat16; 2 layers, keys and values of one head of 16, for a prompt of 10 and 3 half-grown completions of 4."""
    expected = 2 * (MATRICES + 32 * 256 + 2 * 2 * 16 * (10 + 3 * 2))
    assert accelerator.decode_step_bytes(TINY, 3, 10, 4, "bfloat16") == expected
