"""An environment for the alphabet of additions in base 3: it repeats the policy, and counts what it says."""

from pods_jax.environments import register


@register("parrot")
class Parrot:
    """Repeats the last `memory` characters of a turn; done after `turns` turns. Each character is a reward of 1/8."""

    def __init__(self, turns: int = 3, memory: int = 2):
        self._turns = turns
        self._memory = memory

    def reset(self, example):
        self._first = example.prompt[0]
        self._count = 0

    def step(self, text):
        self._count += 1
        repeated = self._first + text[len(text) - self._memory :] if self._memory else ""
        return repeated, len(text) / 8, self._count >= self._turns
