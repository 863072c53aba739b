"""The place of a sweep's curve is checked before anything is compiled, and its numbers come before its picture."""

import json

import pytest

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.planning import report
from pods_jax.planning.size_sweep import SizeSweep


@pytest.fixture
def swept(monkeypatch):
    """The values of each sweep, none of which is compiled."""
    calls = []

    def sweep(config, symbol, topology, devices, say, values):
        calls.append(values)
        return SizeSweep(symbol, "a/model", topology, None, [], None)

    monkeypatch.setattr(report, "sweep_sizes", sweep)
    monkeypatch.setattr(report, "print_sweep", lambda curve, console: None)
    return calls


def test_a_place_that_takes_no_png_is_refused_first(swept, tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder.png").mkdir()
    for out, message in (("c.pgn", "a .png file"), ("folder.png", "a .png file"), ("file/c.png", "cannot be written")):
        with pytest.raises(UserError, match=message):
            report.run(Config(), "local", "m", [8], tmp_path / out)
    assert swept == []


def test_what_a_plan_without_a_sweep_has_no_use_for_is_refused(tmp_path):
    for values, out in (([8], None), (None, tmp_path / "c.png")):
        with pytest.raises(UserError, match="give --sweep m or --sweep n"):
            report.run(Config(), "local", None, values, out)


def test_numbers_are_written_where_the_drawing_fails(swept, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw", lambda curve, out: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.run(Config(), "local", "m", [8], tmp_path / "new" / "c.png")
    assert json.loads((tmp_path / "new" / "c.json").read_text())["symbol"] == "m"


def test_values_are_taken_once_and_in_order(swept):
    report.run(Config(), "local", "m", [16, 8, 16], None)
    assert swept == [[8, 16]]
