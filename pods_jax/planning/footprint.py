"""What a device has to hold while a program runs: the compiler's numbers, and the parts of them that have a name."""

import math
import re
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from jax.typing import DTypeLike

from pods_jax.models.decoder import ModelConfig
from pods_jax.rollout.layout import Layout, kv_bytes

_OVERFLOW = re.compile(r"Ran out of memory .*?(?:Used |HLO temporaries \()([\d.]+)([KMGT])")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Memory(NamedTuple):
    """Bytes on one device.

    Attributes:
      arguments: what the program is given, the parts of a donated state among them.
      outputs: what it returns in memory of its own.
      temporaries: what it needs in between.
      code: the program itself.
      beside: what else of the run is on the device meanwhile.
      fits: whether it compiled; False where the compiler says that the chip's memory is too small, and then all that it
        asked for is in `temporaries`, as it does not say what for.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    beside: int
    fits: bool = True

    @property
    def peak(self) -> int:
        return self.arguments + self.outputs + self.temporaries + self.code + self.beside


def compiled_memory(compiled: jax.stages.Compiled, beside: int) -> Memory:
    """Of a program that compiled; beside: bytes of what it does not see."""
    m = compiled.memory_analysis()
    return Memory(
        arguments=m.argument_size_in_bytes,
        outputs=m.output_size_in_bytes - m.alias_size_in_bytes,
        temporaries=m.temp_size_in_bytes,
        code=m.generated_code_size_in_bytes,
        beside=beside,
    )


def overflow(message: str, beside: int) -> Memory | None:
    """Of a program that needs more memory than its chip has, from the compiler's error; None for any other error."""
    found = _OVERFLOW.search(message)
    used = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    return Memory(0, 0, used, 0, beside, fits=False) if found else None


def device_bytes(tree: Any) -> int:
    """Bytes on one device of arrays, or shapes, with shardings. None is an empty tree."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * jax.numpy.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree)
    )


def cache_bytes(c: ModelConfig, layout: Layout, S: int, T: int, dtype: DTypeLike, mesh: Mesh) -> int:
    """Keys and values on one device, with its share of blocks: S of each block's prompt, T of each rollout."""
    blocks, g = layout.rows.shape
    parts = mesh.shape["data"] * mesh.shape["fsdp"]
    return kv_bytes(c, dtype, mesh) * (blocks * S + blocks * g * T) // parts
