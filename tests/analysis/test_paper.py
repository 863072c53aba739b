"""The authors' published runs give the paper's numbers, from docs/published/pods.json and from their logs.

The logs are needed to check the file: PODS_PUBLISHED names their folder.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pods_jax.analysis import paper
from pods_jax.analysis.published_file import reader, write_compact
from pods_jax.errors import UserError

ROOT = Path(__file__).parents[2]
COMPACT = ROOT / "docs/published/pods.json"
LOGS = Path(os.environ.get("PODS_PUBLISHED", ROOT.parent / "shared/data/pods_published"))
needs_logs = pytest.mark.skipif(not LOGS.is_dir(), reason="PODS_PUBLISHED is no results folder of YixuanEvenXu/pods")

MAIN = {  # threshold, times, speed-up, peaks, seconds a step; baseline first
    "gsm8k_main": (80.82, (3.0, 1.5), 2.0, (81.64, 82.63), (7.56, 10.12)),
    "math_main": (48.41, (5.0, 2.5), 2.0, (48.90, 50.35), (7.87, 10.12)),
    "llama_main": (38.74, (1.5, 0.5), 3.0, (39.13, 55.88), (7.74, 10.89)),
    "h100s_main": (81.73, (24, 14), 1.71, (82.56, 84.12), (21.8, 10.1)),
    "a100s_main": (86.17, (28, 16), 1.75, (87.04, 87.94), (40.6, 9.5)),
}
CURVES = {  # after the base model's point: baseline, PODS
    "gsm8k_main": (
        "79.11 79.45 79.78 80.65 80.72 81.27 81.19 81.64 81.44 81.32 81.28 80.76",
        "79.10 80.57 80.98 81.27 81.72 81.75 82.46 82.46 82.44 82.45 82.63 82.60",
    ),
    "math_main": (
        "41.57 43.93 46.06 46.63 46.77 47.53 47.10 47.91 48.30 48.64 48.15 48.90",
        "42.90 44.56 46.21 47.77 48.92 49.16 49.38 49.66 49.73 49.85 50.35 50.17",
    ),
    "llama_main": (
        "17.13 17.58 19.71 24.74 29.81 34.54 37.43 38.47 39.13",
        "16.68 31.35 42.37 49.50 53.16 55.88 55.60 55.45 54.42",
    ),
    "h100s_main": (
        "2.74 2.96 5.84 13.83 31.85 66.12 78.11 80.30 80.33 80.62 80.21 80.54 82.08 82.00 82.56 82.38",
        "2.97 3.13 13.29 59.35 78.84 81.08 80.98 83.11 83.09 83.60 82.98 83.21 84.12 83.54 83.80 83.12",
    ),
    "a100s_main": (
        "0.94 0.94 1.01 1.08 3.05 4.90 37.57 57.79 57.79 72.90 62.43 73.65 84.07 84.07 87.04 86.59",
        "0.99 0.99 10.77 37.10 57.16 72.98 82.00 81.16 87.81 87.77 87.70 87.51 87.09 87.49 87.53 87.94",
    ),
}
ABLATIONS = {  # seconds a step, peak, last
    ("gsm8k_n_scaling", "n = 16 (GRPO)"): (7.56, 81.64, 80.76),
    ("gsm8k_n_scaling", "n = 32"): (7.95, 82.44, 82.43),
    ("gsm8k_n_scaling", "n = 64 (PODS)"): (10.12, 82.63, 82.60),
    ("gsm8k_n_scaling", "n = 128"): (13.78, 82.68, 82.68),
    ("gsm8k_n_scaling", "n = 256"): (21.37, 82.18, 82.16),
    ("gsm8k_m_scaling", "m = 8"): (9.21, 82.84, 82.84),
    ("gsm8k_m_scaling", "m = 4"): (9.00, 82.86, 82.86),
    ("gsm8k_m_scaling", "m = 2"): (8.05, 81.62, 81.30),
    ("down_sampling_rule", "random"): (10.52, 81.62, 81.62),
    ("down_sampling_rule", "max-reward"): (14.89, 67.28, 67.28),
}
FIGURES = {*MAIN, "gsm8k_n_scaling", "gsm8k_m_scaling", "down_sampling_rule", "completion_lengths"}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """The numbers that the command line itself gives."""
    out = tmp_path_factory.mktemp("figs")
    command = [sys.executable, ROOT / "experiments/figures.py", "--published", COMPACT, "--out", out, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {p.stem for p in out.iterdir()} == FIGURES
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in out.iterdir())
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", MAIN)
def test_speed_ups_peaks_and_costs(numbers, name):
    s, (threshold, times, ratio, peaks, seconds) = numbers["settings"][name], MAIN[name]
    runs = (s["runs"]["baseline"], s["runs"]["pods"])
    assert 100 * s["threshold"] == pytest.approx(threshold, abs=0.006)
    assert (s["baseline"], s["method"]) == pytest.approx(times)
    assert s["ratio"] == pytest.approx(ratio, abs=0.006)
    assert s["low"] <= s["ratio"] <= s["high"]
    assert [100 * r["peak"] for r in runs] == pytest.approx(peaks, abs=0.006)
    assert [r["seconds_per_step"] for r in runs] == pytest.approx(seconds, abs=0.051)
    assert [r["num_runs"] for r in runs] == {"h100s_main": [5, 5], "a100s_main": [4, 5]}.get(name, [10, 10])


@pytest.mark.parametrize("name", CURVES)
def test_mean_curves(name):
    setting = paper.SETTINGS[name]
    for runs, published in zip((setting.baseline, setting.pods), CURVES[name], strict=True):
        means = 100 * reader(COMPACT)(runs).accuracy.mean
        expected = np.array(published.split(), float)
        np.testing.assert_allclose(means[-len(expected) :], expected, atol=0.006)


def test_ablations(numbers):
    for (name, label), expected in ABLATIONS.items():
        r = numbers["ablations"][name][label]
        assert (r["seconds_per_step"], 100 * r["peak"], 100 * r["last"]) == pytest.approx(expected, abs=0.006), label
    rules = numbers["ablations"]["down_sampling_rule"]
    assert [round(rules[k]["last_length"]) for k in ("max-variance", "random", "max-reward")] == [202, 229, 360]
    student = 2.262 / 1.96  # the published band has 1.96 standard errors
    assert 100 * rules["max-reward"]["last_half_width"] == pytest.approx(3.8 * student, abs=0.06)


def test_the_cautions_are_told(numbers):
    assert (
        "GRPO's best and last accuracies are 58.0 % and 55.5 %, PODS' 57.3 % and 56.0 %"
        in (numbers["settings"]["llama_main"]["caution"])
    )
    for name in ("h100s_main", "a100s_main"):
        assert "overwrites its own sort order" in numbers["settings"][name]["caution"]


@needs_logs
def test_the_file_is_what_the_logs_give(tmp_path):
    write_compact(LOGS, tmp_path / "pods.json")
    assert (tmp_path / "pods.json").read_text() == COMPACT.read_text()
    for runs in paper.all_runs():
        exact, rounded = runs.read(LOGS), reader(COMPACT)(runs)
        for a, b, digits in ((exact.accuracy.y, rounded.accuracy.y, 5), (exact.length.y, rounded.length.y, 1)):
            np.testing.assert_allclose(a, b, rtol=0, atol=0.501 * 10**-digits)
        assert exact.seconds_per_step == pytest.approx(rounded.seconds_per_step, rel=1e-4)


@needs_logs
@pytest.mark.parametrize("name", MAIN)
def test_rounding_changes_no_speed_up(name):
    setting = paper.SETTINGS[name]
    exact, rounded = (
        paper.setting_numbers(read(setting.baseline), read(setting.pods)) for read in map(reader, (LOGS, COMPACT))
    )
    for key in ("baseline", "method", "ratio", "low", "high"):
        assert exact[key] == rounded[key]


def test_a_file_without_runs_and_one_without_some_are_told(tmp_path):
    file = tmp_path / "numbers.json"
    file.write_text("{}")
    with pytest.raises(UserError, match=r"numbers\.json has no runs: is it a file"):
        reader(file)
    file.write_text('{"runs": {}}')
    with pytest.raises(UserError, match="no runs 'h100s-ga16'"):
        reader(file)(paper.SETTINGS["h100s_main"].baseline)
