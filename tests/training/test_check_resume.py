"""The script that kills runs: a few kills by default, twenty a method as `slow`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "check_resume.py"
CONFIG = (
    "import json\nfrom ml_collections import ConfigDict\n\ndef get_config():\n    return ConfigDict(json.loads({}))\n"
)


def check(config, folder, *options):
    """The script's summary, and the lines before it."""
    file = folder / "config.py"
    file.write_text(CONFIG.format(repr(json.dumps(config.to_dict()))))
    command = [sys.executable, str(SCRIPT), f"--config={file}", f"--workdir={folder / 'runs'}", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, summary = done.stdout.splitlines()
    return json.loads(summary), lines


@pytest.fixture
def longer(tiny):
    tiny.training.num_steps, tiny.training.checkpoint_every_steps = 24, 2
    tiny.training.eval_every_steps, tiny.training.log_samples_every_steps = 4, 3
    tiny.warm_start.num_steps, tiny.warm_start.batch_size = 50, 8
    return tiny


def test_a_run_killed_while_it_writes_and_updates_ends_the_same(longer, tmp_path):
    options = ("--kills=3", "--phases", "checkpoint", "update", "verify")
    summary, lines = check(longer, tmp_path, *options)
    assert sum(summary["kills"].values()) == 3
    assert summary["identical"]
    stages = [line for line in lines if not line.startswith(" ")]
    assert stages[0] == "the run that is never killed"
    assert [line.partition(" at step ")[0] for line in stages[1:4]] == [f"kill {k} of 3" for k in (1, 2, 3)]
    assert stages[-1] == "identical after 3 kills"


BUFFERED = {"candidates": 8, "p_lower": 0.0, "p_upper": 1.0, "clear_at_epoch_end": False}  # some pilots wait
CHANGES = {
    "uniform": {},
    "pilot_commit": {"allocation": {"name": "pilot_commit", "options": BUFFERED}},
    "lora": {"lora": {"rank": 2}, "objective": {"beta": 0.1, "num_iterations": 2}},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_run_killed_twenty_times_ends_the_same(longer, tmp_path, change):
    longer.update(change)
    longer.training.num_steps = 80
    summary, _ = check(longer, tmp_path, "--kills=20")
    assert sum(summary["kills"].values()) == 20
    assert summary["identical"]
