"""Comparisons with peers at their tiniest: that they run, not how fast."""

import json
import subprocess
import sys
from pathlib import Path

from benchmark import beside_peers
from benchmark.contenders import Result

ROOT = Path(__file__).parents[2]


def test_ratios_are_ours_over_theirs():
    results = {"case": {"ours": Result(1.0, 200.0, 10), "peer": Result(4.0, 50.0, 40)}}
    own, peer = beside_peers.table_rows(results)
    assert "speed_up" not in own
    assert (peer["speed_up"], peer["memory"]) == (4.0, 0.25)


def test_the_command_line_leaves_out_missing_peers_and_writes_json(tmp_path):
    sizes = ["--shape=tiny", "--counts", "2", "--prompt-tokens=4", "--new-tokens=4", "--repeats=1"]
    command = [sys.executable, "experiments/benchmark.py", "update", *sizes, f"--json={tmp_path / 'out.json'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    written = json.loads((tmp_path / "out.json").read_text())
    rows = {row["side"]: row for row in written["update"]}
    assert rows["ours"]["seconds"] > 0
    assert rows["ours"]["peak_bytes"] > 50e6
    assert written["machine"]["cores"] > 0
    if beside_peers.missing_package("torch/update"):
        assert "torch: not installed: torch" in done.stdout
