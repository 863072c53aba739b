"""Processes find their devices and each other; a stopped job is started again."""

import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pods_jax.errors import UserError
from pods_jax.parallel.start import slurm_devices

LAUNCH = Path(__file__).parents[2] / "experiments" / "launch"
EIGHT = {"SLURM_GPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None),  # no Slurm
        ({"SLURM_LOCALID": "0"}, None),  # no accelerators
        ({"SLURM_LOCALID": "0", **EIGHT}, list(range(8))),
        ({"SLURM_LOCALID": "0", "SLURM_GPUS_ON_NODE": "4"}, [0, 1, 2, 3]),  # all are visible
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2", **EIGHT}, [4, 5, 6, 7]),
        ({"SLURM_LOCALID": "5", "SLURM_STEP_TASKS_PER_NODE": "8(x2)", **EIGHT}, [5]),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "8(x2),4", "SLURM_NODEID": "2", **EIGHT}, [2, 3]),
        ({"SLURM_LOCALID": "3", "SLURM_STEP_TASKS_PER_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1"} | {"SLURM_GPUS_ON_NODE": "8"}, [0, 1]),  # noqa: E501 - bound to the task
        ({"SLURM_LOCALID": "3", "SLURM_STEP_TASKS_PER_NODE": "4", "ROCR_VISIBLE_DEVICES": "0"} | {"SLURM_GPUS_ON_NODE": "4"}, [0]),  # noqa: E501
    ],
)  # fmt: skip
def test_a_slurm_task_has_its_share_of_the_nodes_accelerators(environment, expected):
    assert slurm_devices(environment) == expected


@pytest.mark.parametrize("devices", [1, 4, 8])
def test_the_tasks_of_a_node_use_every_accelerator_once(devices):
    for tasks in (k for k in (1, 2, 4, 8) if devices % k == 0):
        environment = {"SLURM_GPUS_ON_NODE": str(devices), "SLURM_STEP_TASKS_PER_NODE": f"{tasks}(x2)"}
        shares = [slurm_devices(environment | {"SLURM_LOCALID": str(i)}) for i in range(tasks)]
        assert sorted(device for share in shares for device in share) == list(range(devices))


def test_accelerators_that_cannot_be_shared_are_a_user_error():
    with pytest.raises(UserError, match="3 tasks cannot share the 8 accelerators"):
        slurm_devices({"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "3", **EIGHT})


def command_line(*arguments):
    command = [sys.executable, str(LAUNCH.parent / "train.py"), "--config=configs/demo.py", "--workdir=/nowhere/run"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=LAUNCH.parents[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--distributed"], "no other processes are found here"),
        (["--coordinator=host", "--num-processes=2", "--process-id=0"], "--coordinator host must be HOST:PORT"),
    ],
)
def test_processes_that_cannot_be_found_are_one_line(arguments, message):
    done = command_line(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---------------------------------------------------------------- a cluster that is not one

SRUN = """#!{python}
import os, subprocess, sys, time
command, options = sys.argv[sys.argv.index("python"):], sys.argv[1:sys.argv.index("python")]
assert "--cpus-per-task=3" in options and "--kill-on-bad-exit=1" in options, options
node = {{"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": "2", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_GPUS_ON_NODE": "4"}}
tasks = [subprocess.Popen(command, env=os.environ | node | {{"SLURM_PROCID": str(i), "SLURM_NODEID": str(i)}})
         for i in range(2)]
metrics, stop = os.environ["METRICS"], os.environ.get("STOP")
while stop and all(task.poll() is None for task in tasks):
    time.sleep(0.1)
    if os.path.exists(metrics) and os.path.getsize(metrics):
        for task in tasks:
            task.terminate()
        break
sys.exit(max(task.wait() for task in tasks))
"""
OPTIONS = " ".join(
    f"--config.{option}"
    for option in (
        "mesh.data=1",
        "mesh.fsdp=4",
        "training.num_steps=3",
        "training.eval_every_steps=0",
        "warm_start.num_steps=0",
        "evaluation.num_prompts=8",
        "rollout.num_prompts=4",
        "optimizer.micro_batch_size_per_device=16",
    )
)


@pytest.fixture
def slurm(tmp_path):
    """Runs slurm.sh on the demo, with an `srun` that starts two processes here: the outcome, its requests, the job."""
    (tmp_path / "bin").mkdir()
    programs = {"srun": SRUN.format(python=sys.executable), "scontrol": f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'}
    for name, text in programs.items():
        file = tmp_path / "bin" / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    script = (LAUNCH / "slurm.sh").read_text()
    for name, value in {"WORKDIR": str(tmp_path / "run"), "OPTIONS": f"({OPTIONS})"}.items():
        script = re.sub(rf"^{name}=.*$", f"{name}={value}", script, flags=re.MULTILINE)

    def run(**variables):
        environment = os.environ | {
            "PATH": f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SLURM_JOB_ID": str(job_of_a_free_port()),
            "SLURM_CPUS_PER_TASK": "3",
            "JAX_PLATFORMS": "cpu",
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "JAX_NUM_CPU_DEVICES": "2",
            "METRICS": str(tmp_path / "run" / "metrics.jsonl"),
        }
        command = ["bash", "-c", script]
        done = subprocess.run(
            command, env=environment | variables, cwd=LAUNCH.parents[1], capture_output=True, text=True, timeout=500
        )
        asked = (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""
        (tmp_path / "asked").unlink(missing_ok=True)
        return done, asked, environment["SLURM_JOB_ID"]

    return run


def job_of_a_free_port():
    """A job's number for which JAX meets at a port that is free: 61440 and the number modulo 4096."""
    for job in range(os.getpid() % 4096, 2 * 4096):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", 61440 + job % 4096))
            return job
    raise AssertionError("no port is free")


@pytest.mark.slow
def test_a_slurm_job_that_is_stopped_asks_to_be_started_again_and_goes_on(slurm, tmp_path):
    done, asked, job = slurm(STOP="1")
    assert done.returncode == 75, done.stderr
    assert asked == f"requeue {job}\n"
    done, asked, _ = slurm()
    assert done.returncode == 0, done.stderr
    assert asked == ""
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 3


def test_a_slurm_job_that_fails_is_not_started_again(slurm):
    done, asked, _ = slurm(PODS_JAX_PROGRAMS="0", JAX_LOCAL_DEVICE_IDS="x")
    assert done.returncode not in (0, 75)
    assert asked == ""


def test_a_jobset_starts_stopped_and_evicted_hosts_again():
    jobset = yaml.safe_load((LAUNCH / "gke_jobset.yaml").read_text())
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    container = job["template"]["spec"]["containers"][0]
    codes, conditions = job["podFailurePolicy"]["rules"]
    code = next(a.partition("=")[2] for a in container["command"] if a.startswith("--stopped-exit-code="))
    assert codes["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [int(code)]}
    assert conditions["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert codes["action"] == conditions["action"] == "FailJob"
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # as Kubernetes asks of a podFailurePolicy
    rule = jobset["spec"]["failurePolicy"]["rules"][0]
    assert rule == {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]}
