"""Throughput of verification: the pairs it reads, and what is counted."""

import json

import pytest
from benchmark import verification

from pods_jax.errors import UserError

PAIRS = [("The answer is \\boxed{1/2}", "0.5"), ("\\boxed{x + x}", "2x"), ("\\boxed{3}", "4")]


def test_verification_is_timed_on_what_is_left_to_workers(tmp_path):
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps({"completion": c, "gold": g}) + "\n" for c, g in PAIRS))
    pairs = verification.read_pairs(path)
    assert pairs == PAIRS
    [row] = verification.by_workers(pairs, counts=[1], min_calls=10)
    assert row["share"] == 1 / 3
    assert row["calls_per_s"] > 0
    with pytest.raises(UserError, match="no lines with 'completion' and 'gold'"):
        verification.read_pairs(tmp_path / "absent.jsonl")
    path.write_text("")
    with pytest.raises(UserError, match="it is empty"):
        verification.read_pairs(path)


def test_verification_beside_math_verify():
    pytest.importorskip("math_verify")
    _, peer = verification.beside_math_verify(PAIRS, repeats=1)
    assert peer["agreement"] == 1
