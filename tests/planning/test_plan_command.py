"""The whole command on this machine's devices, one and eight of them (simulated), and for TPUs if libtpu is here."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).parents[2]
TINY = [
    "--config.data.options.num_train=50",
    "--config.data.options.num_test=8",
    "--config.model.hidden_size=64",
    "--config.model.num_hidden_layers=1",
    "--config.rollout.num_prompts=8",
    "--config.rollout.num_generations=8",
    "--config.selection.num_kept=4",
    "--config.optimizer.micro_batch_size_per_device=2",
    "--config.objective.beta=0.01",
]
MATRICES = 2 * 14 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256
VECTORS = 3 * 64
"""Words of the weights: a vocabulary of 14, 4 heads and 2 key/value heads of 16, an MLP of 256."""
BATCH = 16 * 12 + 16 + 16 * 2 * 7 + 16 * 2 + 16 * 2 + 16 * 2 * 7
"""Words of a batch: 16 blocks of 2 rollouts of 7 tokens, their reference log-probabilities, and prompts of 12."""
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs pip install -e '.[plan]'")


def run(*arguments, devices=1):
    command = [ROOT / "experiments/plan.py", "--config", "configs/demo.py", *TINY, *arguments]
    return forked.run(command, env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)})


@pytest.fixture(scope="module", params=[1, 8])
def planned(request):
    done = run("--json", "--config.mesh.data=1", "--config.mesh.fsdp=-1", devices=request.param)
    assert done.returncode == 0, done.stderr
    assert "compile  update ..." in done.stdout
    assert "no numbers for this device" in done.stdout
    return request.param, json.loads(done.stdout.splitlines()[-1])


def test_weights_and_their_moments_are_split_over_the_devices(planned):
    devices, plan = planned
    parts, expected = plan["phases"]["update"]["bytes"], 4 * (MATRICES // devices + VECTORS)
    assert parts["parameters"] == parts["gradients"] == expected
    assert parts["optimizer state"] == 2 * expected + 2 * 4  # and two counts of steps
    assert plan["phases"]["scoring"]["bytes"]["reference"] == expected


def test_all_else_that_an_update_is_given_is_its_batch(planned):
    """The rest of the compiler's sum, beside the formulas, is known to the byte: batch, and number of the step."""
    devices, plan = planned
    assert plan["phases"]["update"]["bytes"]["other arguments"] == BATCH * 4 // devices + 4


def test_the_cache_is_within_the_samplers_temporaries(planned):
    devices, plan = planned
    parts = plan["phases"]["sampling"]["bytes"]
    assert parts["KV cache"] == 2 * 2 * 16 * 4 * (8 * 12 + 8 * 8 * 7) // devices
    assert parts["other temporaries"] > 0


def test_every_phase_counts_what_others_keep_on_the_device(planned):
    """Parameters, moments and the reference stay where they are throughout a step."""
    _, plan = planned
    held = plan["phases"]["update"]["bytes"]
    stays = held["parameters"] + held["optimizer state"] + plan["phases"]["scoring"]["bytes"]["reference"]
    assert all(phase["peak_bytes"] >= stays for phase in plan["phases"].values())


def test_an_update_gathers_each_weight_for_every_pass_of_every_micro_batch(planned):
    """Two micro-batches, forward and backward; and nothing near as large as that is sent but weights and gradients."""
    devices, plan = planned
    sent = plan["phases"]["update"]["sent_bytes"]
    if devices == 1:
        assert sent == {}
        return
    once = 4 * MATRICES * (devices - 1) / devices
    assert once < sent["all-gather"] < 2 * 3 * once
    assert once < sent["all-reduce"] < 2 * 3 * 2 * once


def test_a_sweep_ends_in_a_curve(tmp_path):
    out = tmp_path / "curve.png"
    done = run("--sweep", "n", "--values", "4", "8", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    curve = json.loads(done.stdout.splitlines()[-1])
    assert [point["rollouts"] for point in curve["points"]] == [8 * 4, 8 * 8]
    assert curve["points"][0]["temporary_bytes"] < curve["points"][1]["temporary_bytes"]
    assert json.loads(out.with_suffix(".json").read_text()) == curve
    assert out.read_bytes().startswith(b"\x89PNG")


def test_gpus_that_are_not_there_are_planned_by_arithmetic(planned):
    """The arrays that formulas give, the same as in a plan with a compiler, and the reason why there is no more."""
    devices, plan = planned
    arguments = ("--topology", f"H200:{devices}", "--json", "--config.mesh.data=1", "--config.mesh.fsdp=-1")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "XLA compiles for NVIDIA GPUs only where one is" in " ".join(done.stdout.split())
    by_formula = json.loads(done.stdout.splitlines()[-1])
    assert by_formula["compiled"] is False
    assert by_formula["phases"].keys() == plan["phases"].keys()
    for name, phase in by_formula["phases"].items():
        assert phase["flops"] == plan["phases"][name]["flops"]
        assert 0 < sum(phase["bytes"].values()) < plan["phases"][name]["peak_bytes"]
        seconds = phase["flops"] / devices / 989e12
        assert phase["times_s_estimate"]["compute"] == pytest.approx(seconds)
    assert by_formula["phases"]["sampling"]["times_s_estimate"]["memory"] > 0


def test_a_sweep_needs_a_compiler():
    done = run("--topology", "H200:8", "--sweep", "n")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_topology_that_is_none_is_one_line():
    """In a Python of its own."""
    command = [sys.executable, "experiments/plan.py", "--config", "configs/demo.py", "--topology", "v9:2x2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "neither 'local' nor CHIP:LAYOUT" in done.stderr


@needs_libtpu
def test_a_slice_that_does_not_exist_is_one_line():
    done = run("--topology", "v5e:3x5")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: --topology v5e:3x5")


@needs_libtpu
@pytest.mark.slow
def test_a_step_is_compiled_for_tpus_that_are_not_there():
    done = run("--topology", "v5e:4x2", "--json", "--config.mesh.data=1", "--config.mesh.fsdp=-1")
    assert done.returncode == 0, done.stderr
    assert "fits: " in done.stdout
    assert "ESTIMATE" in done.stdout
    plan = json.loads(done.stdout.splitlines()[-1])
    assert (plan["chip"], plan["fits"], plan["mesh"]["fsdp"]) == ("v5e", True, 8)
    assert plan["phases"]["update"]["sent_bytes"]["all-gather"] > 0
    assert 0 < plan["time_s_estimate"] < 1
