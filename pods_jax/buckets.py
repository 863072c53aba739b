"""Shape buckets: dynamic sizes are rounded up to few values, so that few programs are compiled."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int32


def ceil_div(a: int | np.ndarray, b: int) -> int | np.ndarray:
    """a / b, rounded up."""
    return -(-a // b)


def bucket(size: int) -> int:
    """The smallest number of two significant binary digits that is >= size: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ..."""
    power = 1 << max(size - 1, 0).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 and power >= 4 else power


def pad_prompts(
    prompts: Sequence[Sequence[int]], pad_id: int = 0
) -> tuple[Int32[np.ndarray, "P S"], Int32[np.ndarray, " P"]]:
    """Right-padded token ids and lengths; both sizes bucketed. Rows beyond `len(prompts)` are empty: length 0."""
    tokens = np.full((bucket(len(prompts)), bucket(max(map(len, prompts)))), pad_id, np.int32)
    lengths = np.zeros(len(tokens), np.int32)
    for i, prompt in enumerate(prompts):
        tokens[i, : len(prompt)] = prompt
        lengths[i] = len(prompt)
    return tokens, lengths
