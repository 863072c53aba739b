"""A plan's memory is what a run takes on this machine, within a tenth."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells peaks")


@pytest.mark.parametrize("T", [65, pytest.param(513, marks=pytest.mark.slow)])
def test_planned_and_measured_memory_agree(T):
    """One token more than a chunk of 64, so that the cache grows; and more than attention takes at once."""
    command = [sys.executable, str(Path(__file__).with_name("measured.py")), str(T)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["planned"].keys() == found["measured"].keys() == {"sampling", "update"}
    for name, planned in found["planned"].items():
        assert planned == pytest.approx(found["measured"][name], rel=0.1), (name, found)
