from math import inf, nan

import pytest

from pods_jax.analysis.style import speed_up_in_words, with_half_width


@pytest.mark.parametrize(
    ("baseline", "method", "ratio", "interval", "words"),
    [
        (3.0, 2.0, 1.5, (1.0, 2.0), "1.50x [1.00, 2.00]"),
        (3.0, 2.0, 1.5, (0.0, inf), "1.50x [0.00, no bound]"),
        (3.0, 2.0, 1.5, (nan, nan), "1.50x"),
        (3.0, inf, 0.0, (0.0, 0.0), "not reached"),
        (inf, inf, nan, (nan, nan), "not reached"),
        (3.0, 0.0, inf, (nan, nan), "reached before training"),
        (0.0, 0.0, nan, (nan, nan), "reached before training"),
        (0.0, 2.0, 0.0, (0.0, 0.0), "reached, and by the baseline before training"),
        (inf, 2.0, inf, (nan, nan), "reached, and not by the baseline"),
    ],
)
def test_a_speed_up_is_a_ratio_or_words(baseline, method, ratio, interval, words):
    numbers = {"baseline": baseline, "method": method, "ratio": ratio, "low": interval[0], "high": interval[1]}
    assert speed_up_in_words(numbers) == words


def test_one_run_has_no_half_width():
    assert with_half_width(0.5, 0.01) == "0.5000 +- 0.0100"
    assert with_half_width(0.5, nan) == "0.5000"
