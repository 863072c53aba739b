"""The endless, shuffled, resumable stream of training prompts."""

from collections.abc import Sequence

import numpy as np

from pods_jax.data.examples import Example
from pods_jax.groups import Prompt


class PromptStream:
    """Epochs over the examples, each in an order of its own; its only state is the position."""

    def __init__(self, examples: Sequence[Example], tokens: Sequence[Sequence[int]], seed: int):
        """tokens: the token ids of every example's rendered prompt."""
        self.position = 0
        self._examples = examples
        self._tokens = tokens
        self._seed = seed
        self._epoch = -1
        self._order = np.empty(0, int)

    @property
    def num_examples(self) -> int:
        """The length of an epoch."""
        return len(self._examples)

    def next(self, count: int) -> list[Prompt]:
        """The next `count` prompts; crosses into the next epoch where one ends."""
        return [self._draw() for _ in range(count)]

    def _draw(self) -> Prompt:
        epoch, place = divmod(self.position, len(self._examples))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self._seed, epoch]).permutation(len(self._examples))
        index = int(self._order[place])
        example = self._examples[index]
        self.position += 1
        tokens = tuple(self._tokens[index])
        return Prompt(self.position - 1, index, example.prompt, example.gold, example.kind, tokens, epoch)

    def state_dict(self) -> dict:
        return {"position": self.position}

    def load_state_dict(self, state: dict) -> None:
        self.position = state["position"]
