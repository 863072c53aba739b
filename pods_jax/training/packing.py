"""Host state with numpy arrays in it: the arrays are packed into one block of bytes, the rest is JSON-able."""

import io
from typing import Any

import numpy as np
from jaxtyping import UInt8

_ARRAY = "__array__"  # {_ARRAY: i} stands for the i-th array


def pack(state: Any) -> tuple[Any, UInt8[np.ndarray, " bytes"]]:
    """Splits JSON-able values and numpy arrays, nested in dicts and lists: what JSON holds, and the arrays' bytes."""
    arrays: list[np.ndarray] = []

    def strip(node):
        if isinstance(node, np.ndarray):
            arrays.append(node)
            return {_ARRAY: len(arrays) - 1}
        if isinstance(node, dict):
            return {k: strip(v) for k, v in node.items()}
        return [strip(v) for v in node] if isinstance(node, list | tuple) else node

    plain, file = strip(state), io.BytesIO()
    np.savez(file, *arrays, allow_pickle=False)
    return plain, np.frombuffer(file.getvalue(), np.uint8)


def unpack(plain: Any, packed: UInt8[np.ndarray, " bytes"]) -> Any:
    """The state that was packed, arrays to the bit; tuples come back as lists."""
    arrays = np.load(io.BytesIO(packed.tobytes()), allow_pickle=False)

    def fill(node):
        if isinstance(node, dict):
            return arrays[f"arr_{node[_ARRAY]}"] if _ARRAY in node else {k: fill(v) for k, v in node.items()}
        return [fill(v) for v in node] if isinstance(node, list) else node

    return fill(plain)
