"""Numbers of runs as words, for lines that are printed."""

import math
from collections.abc import Mapping


def speed_up_in_words(numbers: Mapping[str, float]) -> str:
    """Of the fields of a `SpeedUp`: the ratio, or why there is none."""
    if math.isinf(numbers["method"]):
        return "not reached"
    if numbers["method"] == 0:
        return "reached before training"
    if math.isinf(numbers["baseline"]):
        return "reached, and not by the baseline"
    if numbers["baseline"] == 0:
        return "reached, and by the baseline before training"
    return f"{numbers['ratio']:.2f}x{_interval(numbers['low'], numbers['high'])}"


def _interval(low: float, high: float) -> str:
    if math.isnan(low):
        return ""
    return f" [{low:.2f}, {'no bound' if math.isinf(high) else f'{high:.2f}'}]"


def with_half_width(value: float, half_width: float) -> str:
    """The value, with its half-width if it has one."""
    return f"{value:.4f}" if math.isnan(half_width) else f"{value:.4f} +- {half_width:.4f}"
