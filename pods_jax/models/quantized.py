"""A frozen base in int8 or nf4 (4-bit NormalFloat; Dettmers et al. 2023, arXiv 2305.14314), through `qwix`.

Only weights are quantised: matrices are stored small, and dequantised layer by layer when they are used.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from pods_jax.config.schema import PROJECTIONS
from pods_jax.errors import UserError
from pods_jax.models.decoder import Params

KINDS = {"int8": {}, "nf4": {"tiled_axes": {1: 64}}}
"""The kinds by name: int8 has one scale for a column, nf4 one for 64 entries of a column (as in QLoRA)."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Quantized:
    """A stack of matrices as qwix's QArray; takes the place of the matrices [L, in, out], or of one of them."""

    values: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __rmatmul__(self, x: Float[Array, "N in"]) -> Float[Array, "N out"]:
        return x @ self.dense().astype(x.dtype)

    def astype(self, dtype: str) -> "Quantized":
        """The same object: stored values are cast only when they multiply."""
        return self

    def dense(self) -> Float[Array, "*L in out"]:
        """The dequantised matrices."""
        import qwix

        return _from_nf4(self.values) if self.values.qtype == "nf4" else qwix.dequantize(self.values)


NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The value of each code, before it is scaled (QLoRA, appendix E)."""


def _from_nf4(values: Any) -> Float[Array, "*L in out"]:
    """qwix's dequantisation to the bit, in one pass that XLA fuses with the product that follows.

    qwix looks the codes up in a table, which a TPU program does by 15 comparisons of the whole matrix, each of them
    written to memory: 55 times the bytes.
    """
    entries = _values_of(values.qvalue).astype(values.scale.dtype)
    *layers, rows, columns = entries.shape
    blocks = values.scale.shape[-2]
    scaled = entries.reshape(*layers, blocks, rows // blocks, columns) * values.scale[..., :, None, :]
    return scaled.reshape(entries.shape)


def _values_of(codes: Integer[Array, "*L in out"]) -> Float[Array, "*L in out"]:
    """Bit by bit, from the lowest: the values of odd and of even codes are halved to one."""
    codes = codes.astype(jnp.int32)
    values = [jnp.float32(value) for value in NF4]
    for bit in range(4):
        is_odd = (codes >> bit) & 1 == 1
        values = [jnp.where(is_odd, odd, even) for even, odd in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def quantize(params: Params, kind: str) -> Params:
    """The parameters with the seven projections stored as `kind`; embedding, head and norms stay as they are.

    Raises:
      UserError: qwix is not installed, or a matrix does not divide into its blocks.
    """
    try:
        import qwix
    except ModuleNotFoundError:
        raise UserError(f"lora.quantize_base = '{kind}' needs the package qwix: pip install -e '.[quantize]'") from None
    layers = dict(params["layers"])
    for name in (projection.removesuffix("_proj") for projection in PROJECTIONS):
        rows = layers[name].shape[1]
        if any(rows % size for size in KINDS[kind].get("tiled_axes", {}).values()):
            raise UserError(f"lora.quantize_base = '{kind}': the {rows} rows of '{name}' do not divide into blocks")
        layers[name] = Quantized(qwix.quantize(layers[name], kind, channelwise_axes=(0, 2), **KINDS[kind]))
    return {**params, "layers": layers}
