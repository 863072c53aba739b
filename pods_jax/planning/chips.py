"""Accelerators: a table of their peak rates, and the devices of a topology that is not at hand."""

import dataclasses
import importlib.util
import os
import re
from collections.abc import Sequence
from typing import Any

import jax

from pods_jax.errors import UserError

GiB = 1024**3


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peak numbers of one chip by its vendor; a chip is one JAX device.

    Attributes:
      flops_per_s: dense bfloat16.
      hbm_bytes: all of it; a runtime keeps some for itself (some 0.3 GB on a TPU, 0.5 to 1 GB on a GPU).
      hbm_bytes_per_s: memory bandwidth.
      link_bytes_per_s: over all links together, in one direction.
      source: where the numbers are published.
    """

    flops_per_s: float
    hbm_bytes: int
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    source: str


CHIPS = {
    "v4": Chip(275e12, 32 * GiB, 1200e9, 300e9, "cloud.google.com/tpu/docs/v4; ICI 2400 Gbps: scaling-book, chapter 2"),
    "v5e": Chip(197e12, 16 * GiB, 819e9, 200e9, "cloud.google.com/tpu/docs/v5e: ICI 1600 Gbps"),
    "v5p": Chip(459e12, 95 * GiB, 2765e9, 600e9, "cloud.google.com/tpu/docs/v5p: ICI 4800 Gbps"),
    "v6e": Chip(918e12, 32 * GiB, 1600e9, 400e9, "cloud.google.com/tpu/docs/v6e: ICI 3200 Gbps"),
    "A100": Chip(312e12, 80 * 10**9, 2039e9, 300e9, "NVIDIA A100 80GB SXM data sheet: NVLink 600 GB/s both ways"),
    "A100-40GB": Chip(312e12, 40 * 10**9, 1555e9, 300e9, "NVIDIA A100 40GB SXM data sheet: NVLink 600 GB/s both ways"),
    "H100": Chip(989e12, 80 * 10**9, 3350e9, 450e9, "NVIDIA H100 SXM data sheet: NVLink 900 GB/s both ways"),
    "H200": Chip(989e12, 141 * 10**9, 4800e9, 450e9, "NVIDIA H200 SXM data sheet: NVLink 900 GB/s both ways"),
}
_TPU_KINDS = {"TPU v4": "v4", "TPU v5 lite": "v5e", "TPU v5": "v5p", "TPU v5p": "v5p", "TPU v6 lite": "v6e"}


def chip_name(device_kind: str) -> str | None:
    """The key of CHIPS for JAX's `device_kind`; None for a CPU or an accelerator that is not in the table."""
    if device_kind in _TPU_KINDS:
        return _TPU_KINDS[device_kind]
    words = re.split(r"[\s-]+", device_kind)
    if {"TPU", "MIG"} & set(words):  # a MIG device is a part of a GPU
        return None
    sizes = [word for word in words if re.fullmatch(r"\d+GB", word)]
    found = next((name for name in CHIPS if name in words), None)
    if found is None or not sizes or sizes == [f"{CHIPS[found].hbm_bytes // 10**9}GB"]:
        return found
    named = f"{found}-{sizes[0]}"
    return named if named in CHIPS else None


def topology_devices(topology: str) -> Sequence[Any]:
    """This machine's devices for "local", else those that a TPU slice such as "v5e:4x4" would have.

    Raises:
      UserError: the slice does not exist, or libtpu, which compiles for it, is not installed.
    """
    if topology == "local":
        return jax.devices()
    name, _, layout = topology.partition(":")
    if name not in CHIPS or not name.startswith("v") or not layout:
        tpus = ", ".join(chip for chip in CHIPS if chip.startswith("v"))
        gpus = ", ".join(chip for chip in CHIPS if not chip.startswith("v"))
        raise UserError(
            f"--topology {topology} is neither 'local' nor CHIP:LAYOUT, e.g. v5e:4x4 or v5p:2x2x2 ({tpus}), nor a "
            f"number of GPUs, e.g. H200:8 ({gpus})"
        )
    if importlib.util.find_spec("libtpu") is None:
        raise UserError(f"--topology {topology} needs libtpu, which compiles for TPUs: pip install -e '.[plan]'")
    _quieten_libtpu()
    from jax.experimental import topologies

    options = {"chip_config_name": "megacore"} if name == "v4" else {}  # two cores a chip, used as one device
    if set(layout.split("x")) == {"1"}:
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology, **options).devices
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"--topology {topology}: {str(error).splitlines()[0]}") from error


def _quieten_libtpu() -> None:
    """Keeps libtpu, which only compiles here, from looking for a TPU host and complaining that there is none."""
    if not jax.config.jax_platforms:
        jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)  # what is compiled for no device can not be read back
    jax.config.update("jax_exec_time_optimization_effort", -1.0)  # nor is it run: a third of the time to compile
    for name, value in (
        ("TPU_SKIP_MDS_QUERY", "1"),
        ("TPU_ACCELERATOR_TYPE", "v5litepod-1"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),  # no TPU is used, so several processes may compile
    ):
        os.environ.setdefault(name, value)
