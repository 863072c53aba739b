"""Joining the processes of a run, for command lines: found through a cluster or by address, and ended together."""

import os
import re
import threading
from collections.abc import Mapping

import jax

from pods_jax.errors import UserError

SHUTDOWN_S = 60
"""Seconds that a process that ends waits for the others before it takes them down, such as a failed one for those that
wait for it in a collective."""

HEARTBEAT_S = 60
"""Seconds of silence after which a process, killed or cut off, is given up and the others end."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def join(coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Waits for the other processes, found at the coordinator's address or, without one, through the cluster.

    Each has all accelerators that it can use (see `slurm_devices`). Must come before JAX is used.

    Raises:
      UserError: there is no cluster to ask, or a node's accelerators cannot be shared among its tasks.
    """
    own = None if "JAX_LOCAL_DEVICE_IDS" in os.environ else slurm_devices(os.environ)
    waits = {"heartbeat_timeout_seconds": HEARTBEAT_S, "shutdown_timeout_seconds": SHUTDOWN_S}
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id, local_device_ids=own, **waits)
    except ValueError as error:
        raise UserError(
            f"no other processes are found here, as they are on Slurm, GKE and Cloud TPU ({error}): give each process "
            "--coordinator, --num-processes and --process-id"
        ) from error


def end_within(seconds: float, code: int) -> None:
    """Ends this process with an exit code in so many seconds, whatever its threads then wait for.

    One that failed may never end in order: a save in the background, say, waits for what it will not get.
    """
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


# ---------------------------------------------------------------- Slurm


def slurm_devices(environment: Mapping[str, str]) -> list[int] | None:
    """The accelerators of this Slurm task, numbered as it sees them; None outside of Slurm, or without accelerators.

    Left to itself JAX gives every task the one whose number is SLURM_LOCALID. Where Slurm binds accelerators to tasks,
    a task has all that it sees; elsewhere the tasks of a node share the node's, in order.

    Raises:
      UserError: the tasks of the node cannot have equally many.
    """
    if "SLURM_LOCALID" not in environment:
        return None
    on_node = _on_node(environment)
    visible = _visible(environment)
    seen = on_node if visible is None else visible
    if not seen or seen < on_node:
        return list(range(seen)) or None
    tasks = _tasks_on_node(environment)
    if seen % tasks:
        raise UserError(f"Slurm: {tasks} tasks cannot share the {seen} accelerators of a node: use --ntasks-per-node=1")
    share = seen // tasks
    index = int(environment["SLURM_LOCALID"])
    return list(range(index * share, (index + 1) * share))


def _on_node(environment: Mapping[str, str]) -> int:
    """Accelerators of the node that the job has; 0 if Slurm does not say."""
    return int(environment.get("SLURM_GPUS_ON_NODE") or 0)


def _visible(environment: Mapping[str, str]) -> int | None:
    """Accelerators that the task may see; None: all of the node."""
    listed = next((environment[name] for name in _VISIBLE if environment.get(name)), None)
    return None if listed is None else len(listed.split(","))


def _tasks_on_node(environment: Mapping[str, str]) -> int:
    """Tasks of this step on its node. Slurm writes one count a node: "2(x3),1" is 2, 2, 2, 1."""
    written = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_NTASKS_PER_NODE") or "1"
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", written)
    each = [int(count) for count, times in counts for _ in range(int(times or 1))]
    return each[min(int(environment.get("SLURM_NODEID", 0)), len(each) - 1)]
