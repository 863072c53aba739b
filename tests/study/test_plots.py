"""Figures of the study where runs differ in length."""

import numpy as np
import pytest
from study import plots

from pods_jax.analysis.curves import Curves


def curve(*x):
    return Curves(np.array(x, float), np.full((2, len(x)), 0.5))


@pytest.mark.parametrize("late", ["mixed-dapo", "mixed-pilot_commit"])
def test_a_run_that_begins_after_another_ends_is_drawn_beside_it(late, tmp_path):
    """A running mean begins at its window's end, which a method of many rollouts a step reaches late."""
    curves = {"mixed-grpo": curve(10, 20, 30), "mixed-dapo": curve(10, 20), "mixed-pilot_commit": curve(10, 20)}
    curves[late] = curve(100, 200)
    assert plots._draw_pairs("allocation", curves, "rollouts generated", tmp_path / "pairs.png", "").stat().st_size > 0
