"""Functions as a user would write them."""

import asyncio

import numpy as np

SEEN = {}


def brevity(completions, **columns):
    SEEN.update(columns)
    return [None if not c else 1.0 / len(c) for c in completions]


def equals_gold(completions, gold, **columns):
    return [float(c == g) for c, g in zip(completions, gold, strict=True)]


def hangs(completions, **columns):
    while True:
        pass


def too_few(completions, **columns):
    return []


def infinite(completions, **columns):
    return [float("inf")] * len(completions)


def words(completions, **columns):
    return ["good"] * len(completions)


def a_scalar(completions, **columns):
    return 1.0


def nothing_at_all(completions, **columns):
    return None


def a_mapping(completions, **columns):
    return {c: 1.0 for c in completions}


def a_text(completions, **columns):
    return "1" * len(completions)


def enormous(completions, **columns):
    return [10**400] * len(completions)


def more_digits_than_python_writes(completions, **columns):
    return [10**5000] * len(completions)


def nested(completions, **columns):
    return [[1.0]] * len(completions)


def raises(completions, **columns):
    return [1 / 0 for _ in completions]


def needs_targets(prompts, completions, completion_ids, target, **columns):
    """TRL's documented signature, with a column of the data set."""
    return [float(len(ids) == t) for ids, t in zip(completion_ids, target, strict=True)]


async def awaited(completions, **columns):
    await asyncio.sleep(0)
    return [float(len(c)) for c in completions]


def an_array(completions, **columns):
    return np.ones(len(completions), np.float32)


CONSTANT = 1
