"""The size at which a curve meets a chip's memory."""

import pytest
from matplotlib.axes import Axes

from pods_jax.planning.chips import CHIPS
from pods_jax.planning.size_sweep import Point, SizeSweep, draw, largest_that_fits


def point(value, peak_bytes, compiled=True):
    return Point(value, 4 * value, peak_bytes, 0, compiled, None, 0.0)


def test_memory_runs_out_where_the_line_says():
    """2 GB and half a GB a rollout; a program that did not compile is not on the line."""
    points = [point(v, 2 * 10**9 + v * 10**9 // 2) for v in (2, 4, 8)] + [point(64, 10**12, compiled=False)]
    largest = largest_that_fits(points, "v5e")
    assert largest == int((CHIPS["v5e"].hbm_bytes - 2 * 10**9) / (10**9 / 2))
    assert SizeSweep("m", "a/model", "v5e:1x1", "v5e", points, largest).largest_rollouts == 4 * largest


def test_a_figure_names_its_model(monkeypatch, tmp_path):
    titles = []
    monkeypatch.setattr(Axes, "set_title", lambda self, title, *args, **options: titles.append(title))
    draw(SizeSweep("m", "org/model", "v5e:1x1", "v5e", [point(2, 100), point(4, 200)], None), tmp_path / "c.png")
    assert titles == ["org/model on v5e:1x1"]


@pytest.mark.parametrize("chip", ["v5e", None])
def test_one_point_makes_no_line(chip):
    assert largest_that_fits([point(2, 100)], chip) is None
