"""The authors' file layout, from files made up here."""

import csv
import json

import numpy as np
import pytest

from pods_jax.analysis.paper import EightDevices, SingleDevice
from pods_jax.errors import UserError

RUNS = SingleDevice("Toy-16-16", every_hours=0.5, count=2, base="base-toy")


def scores(accuracy, length=100.0):
    return {"gsm8k": {"ans_acc": [accuracy, accuracy + 0.02], "both_acc": [accuracy / 2] * 2, "lengths": [length] * 2}}


def write_single(folder, steps=((50, 100, 150), (60, 120))):
    """Two runs, the first with a checkpoint too many, steps not in order of their names as texts."""
    for run, checkpoints in enumerate(steps, start=1):
        record = {f"checkpoint-{s}": scores(0.1 * run + s / 1000, 200 - s) for s in sorted(checkpoints, key=str)}
        (folder / f"Toy-16-16-Run{run}.json").write_text(json.dumps(record))
    (folder / "base-toy.json").write_text(json.dumps(scores(0.05)))


def write_csv(folder, quantity, columns):
    """columns: run -> [(seconds, step, value)]."""
    names = ["eval/time"]
    for run in columns:
        names += [f"data/{run} - _step", f"data/{run} - _step__MIN", f"data/{run} - eval/{quantity}"]
    with open(folder / f"toy-{quantity}.csv", "w", newline="") as f:
        writer = csv.DictWriter(f, names, restval="")
        writer.writeheader()
        for run, points in columns.items():
            for seconds, step, value in points:
                cells = dict(zip(names[1:], [""] * len(names), strict=False)) | {"eval/time": seconds}
                cells |= {f"data/{run} - _step": step, f"data/{run} - eval/{quantity}": value}
                writer.writerow(cells)


def test_single_device_runs(tmp_path):
    write_single(tmp_path)
    runs = RUNS.read(tmp_path)
    assert runs.accuracy.x.tolist() == [0.0, 0.5, 1.0]
    np.testing.assert_allclose(runs.accuracy.y, [[0.06, 0.16, 0.21], [0.06, 0.27, 0.33]])
    np.testing.assert_allclose(runs.length.y, [[100, 150, 100], [100, 140, 80]])
    assert runs.steps.tolist() == [[50, 100], [60, 120]]
    assert runs.seconds_per_step == pytest.approx((36 + 30) / 2)


def test_another_metric(tmp_path):
    write_single(tmp_path)
    runs = SingleDevice("Toy-16-16", metric="both_acc", count=1, base="base-toy").read(tmp_path)
    np.testing.assert_allclose(runs.accuracy.y[:, 1], [0.075, 0.13])


def test_eight_device_runs_at_the_nearest_evaluation(tmp_path):
    runs = {"a-ga4": [(60, 8, 0.1), (1790, 800, 0.9)], "b-ga4": [(100, 8, 0.3), (1900, 400, 0.7)]}
    write_csv(tmp_path, "acc", runs | {"c-ga4": [(60, 8, 0.5)], "a-ga16": [(60, 16, 0.2), (1800, 1600, 0.4)]})
    write_csv(tmp_path, "length", runs | {"a-ga16": [(60, 16, 300.0)]})
    ga4, ga16 = (EightDevices("toy", k).read(tmp_path) for k in (4, 16))
    assert ga4.accuracy.y.shape == (2, 16)  # run c has no lengths
    np.testing.assert_allclose(ga4.accuracy.mean[[0, 7, 8, 15]], [0.2, 0.2, 0.6, 0.8])
    assert ga4.seconds_per_step == pytest.approx(1800 / 150)
    assert ga16.accuracy.y[0, -1] == 0.4
    assert ga16.seconds_per_step == pytest.approx(18.0)


def test_a_truncated_file_is_named(tmp_path):
    write_single(tmp_path)
    file = tmp_path / "Toy-16-16-Run2.json"
    file.write_text(file.read_text()[:50])
    with pytest.raises(UserError, match=r"Run2\.json: not JSON: .*line 1"):
        RUNS.read(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match=r"has no Toy-16-16-Run\*.json"):
        RUNS.read(tmp_path)
    with pytest.raises(UserError, match=r"has no toy-acc\.csv"):
        EightDevices("toy", 4).read(tmp_path)
    write_single(tmp_path, steps=((50,),))
    with pytest.raises(UserError, match=r"Run1\.json has 1 checkpoints, and 2 are plotted"):
        RUNS.read(tmp_path)
    (tmp_path / "base-toy.json").unlink()
    write_single(tmp_path)
    (tmp_path / "base-toy.json").unlink()
    with pytest.raises(UserError, match=r"base-toy\.json: no such file"):
        RUNS.read(tmp_path)
    write_csv(tmp_path, "acc", {"a-ga16": [(60, 16, 0.2)]})
    write_csv(tmp_path, "length", {"a-ga16": [(60, 16, 0.2)]})
    with pytest.raises(UserError, match="no runs of -ga4"):
        EightDevices("toy", 4).read(tmp_path)
