"""A frozen base in int8 or nf4 (4-bit NormalFloat; Dettmers et al. 2023, arXiv 2305.14314), through `qwix`.

Only weights are quantised: matrices are stored small, and dequantised layer by layer when they are used.
"""

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, Float

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

        return qwix.dequantize(self.values)


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
