"""Functions as a user would write them."""

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


CONSTANT = 1
