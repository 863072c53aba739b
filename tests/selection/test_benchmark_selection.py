import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "experiments/benchmark_selection.py"


def test_the_benchmark_finds_both_ways_of_equal_variance_and_reports_a_ratio():
    command = [sys.executable, str(BENCHMARK), "--groups", "64", "--generations", "16", "--kept", "4"]
    record = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert record["ratio"] == record["loop_s"] / record["jitted_s"] > 0
