"""The device mesh: axes `data` (groups), `fsdp` (groups and parameters) and `tensor` (heads and MLP)."""

import math
from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pods_jax.config.schema import MeshConfig
from pods_jax.errors import UserError

AXES = ("data", "fsdp", "tensor")


def mesh_shape(sizes: Sequence[int], num_devices: int) -> tuple[int, ...]:
    """Axis sizes with a single -1 replaced by what fills `num_devices`."""
    known = math.prod(s for s in sizes if s != -1)
    shape = tuple(num_devices // max(known, 1) if s == -1 else s for s in sizes)
    if math.prod(shape) != num_devices:
        raise UserError(f"mesh {dict(zip(AXES, sizes, strict=True))} does not fit {num_devices} device(s)")
    return shape


def make_mesh(data: int = -1, fsdp: int = 1, tensor: int = 1, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (default: all); -1 fills an axis. Axes are `Auto`: the compiler propagates shardings."""
    devices = jax.devices() if devices is None else devices
    shape = mesh_shape((data, fsdp, tensor), len(devices))
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def make_meshes(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> tuple[Mesh, Mesh]:
    """The mesh that trains and the one that samples, over `devices` (default: all).

    They are the same; or of the same devices, with other axes; or, where config.sampling says how many devices it has,
    of devices of their own, of which the last ones sample.

    Raises:
      UserError: the axes do not fit the devices, training is left without any, or several processes would share them.
    """
    axes = dict(config.sampling)
    apart = axes.pop("devices", 0)
    devices = jax.devices() if devices is None else list(devices)
    if apart >= len(devices):
        raise UserError(f"mesh.sampling.devices = {apart} of {len(devices)} device(s) leave none for training")
    if apart and jax.process_count() > 1:
        raise UserError("mesh.sampling.devices needs a single process: several cannot train and sample at a time")
    training = make_mesh(config.data, config.fsdp, config.tensor, devices[: len(devices) - apart])
    if not config.sampling:
        return training, training
    return training, make_mesh(**axes, devices=devices[len(devices) - apart :] if apart else devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Leading axis (groups) split over all data-like mesh axes."""
    return NamedSharding(mesh, P(("data", "fsdp")))


def num_shards(mesh: Mesh) -> int:
    """The number of parts into which `batch_sharding` splits a batch."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


_OVERLAP = (
    "xla_enable_async_all_gather",
    "xla_tpu_enable_async_collective_fusion",
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather",
    "xla_tpu_enable_async_collective_fusion_multiple_steps",
    "xla_tpu_overlap_compute_collective_tc",
)


def overlap_options(mesh: Mesh) -> dict[str, str]:
    """Compiler options with which TPUs gather the next weights while they multiply; none on other devices."""
    on_tpus = mesh.size > 1 and mesh.devices.flat[0].platform == "tpu"
    return dict.fromkeys(_OVERLAP, "true") if on_tpus else {}
