"""Random numbers that need no state: every use has its own generator, named by the run's seed, a word and counters."""

import zlib

import numpy as np


def generator(seed: int, use: str, *counters: int) -> np.random.Generator:
    """The same numbers for the same arguments, on every machine; different ones for any other."""
    return np.random.default_rng([seed, zlib.crc32(use.encode()), *counters])
