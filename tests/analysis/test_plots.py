"""What figures write on their bars."""

import numpy as np
import pytest

from pods_jax.analysis.curves import Curves
from pods_jax.analysis.figures import Line, draw_costs
from pods_jax.analysis.style import look_of, new_figure


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        ([7.56, 10.12], ["7.56", "10.1"]),
        ([7.56, 10.12, 13.8, 21.3, 0.102], ["7.6", "10", "14", "21", "0.10"]),  # narrow bars
    ],
)
def test_a_bar_bears_the_sum_of_its_phases(seconds, labels):
    nowhere = Curves(np.zeros(1), np.zeros((1, 1)))
    lines = [Line(look_of("pods"), nowhere, {"sample": s / 4, "update": 3 * s / 4}) for s in seconds]
    with new_figure(2.0) as figure:
        axes = figure.subplots()
        draw_costs(axes, lines)
    assert [text.get_text() for text in axes.texts] == labels
