"""Stop strings: completions that end where their text contains one.

Many sequences of tokens spell a string, so it is looked for in decoded text, on the host, between two chunks of tokens.
What was drawn beyond it is dropped; where a completion ends does not depend on the chunks.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from pods_jax.rollout.decode import Decoded
from pods_jax.rollout.layout import Layout

MARGIN = 4
"""Characters that a decoder may make of a text's first ones when what is before them is missing."""


@dataclasses.dataclass(frozen=True)
class StopStrings:
    """Strings that end a completion, and the decoder of its tokens. A string must not be empty."""

    decode: Callable[[Sequence[int]], str]
    strings: tuple[str, ...]

    def end(self, ids: Sequence[int], start: int) -> int | None:
        """The least number of tokens, above `start`, whose text contains a string; None if there is none.

        Args:
          start: a number of tokens whose text contains none.
        """
        if not self._within(ids[self._window(ids, start) :]):
            return None
        return next((k for k in range(start + 1, len(ids) + 1) if self._within(ids[:k])), None)

    def _within(self, ids: Sequence[int]) -> bool:
        text = self.decode(ids)
        return any(string in text for string in self.strings)

    def _window(self, ids: Sequence[int], start: int) -> int:
        """A token so far before `start` that all strings which end beyond `start` begin behind it."""
        needed = max(map(len, self.strings)) + MARGIN
        size = needed
        while size < start and len(self.decode(ids[start - size : start])) < needed:
            size *= 2
        return max(start - size, 0)


def stopped(stops: StopStrings, layout: Layout, before: np.ndarray, chunk: Decoded, pad_id: int) -> Decoded:
    """The chunk, without the tokens beyond the first stop string of each rollout, which is done there.

    Args:
      layout: of the chunk's rollouts.
      before: [P, n, t] the tokens before the chunk.
      chunk: on the host.
    """
    lengths = chunk.lengths.copy()
    done = chunk.done.copy()
    for place in np.argwhere((layout.rows >= 0) & (lengths > 0)):
        b, i = place
        earlier = before[layout.groups[b], layout.rows[b, i]].tolist()
        ids = earlier + chunk.tokens[b, i, : lengths[b, i]].tolist()
        if (end := stops.end(ids, len(earlier))) is not None:
            lengths[b, i] = end - len(earlier)
            done[b, i] = True
    kept = np.arange(chunk.tokens.shape[-1]) < lengths[..., None]
    drawn = chunk.drawn_logprobs
    return Decoded(
        tokens=np.where(kept, chunk.tokens, pad_id),
        logprobs=np.where(kept, chunk.logprobs, np.float32(0)),
        drawn_logprobs=None if drawn is None else np.where(kept, drawn, np.float32(0)),
        lengths=lengths,
        done=done,
    )
