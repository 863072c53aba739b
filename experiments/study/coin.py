"""A reward that splits every group in halves, for step costs: the gradient of a group of equal rewards is skipped."""

from collections.abc import Sequence


def coin(prompts: Sequence[str], completions: Sequence[str], **_) -> list[float]:
    """0 and 1 in turn."""
    return [float(i % 2) for i in range(len(completions))]
