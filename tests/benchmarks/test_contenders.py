"""Processes of contenders, and the summaries of their turns."""

import pytest
from benchmark.contenders import Contender, Result, summarise

from pods_jax.errors import UserError


def test_medians_and_peaks():
    turns = [{"seconds": s, "tokens": 10, "peak_bytes": p} for s, p in ((1.0, 5), (4.0, 9), (2.0, 7))]
    assert summarise(turns) == Result(2.0, 5.0, 9)


def test_a_contender_that_fails_is_an_error_of_one_line(tmp_path):
    with pytest.raises(UserError, match="ours/update ended with exit code 1"):
        Contender("ours/update", {"folder": str(tmp_path)})
