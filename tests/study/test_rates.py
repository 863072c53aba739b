"""The search for a learning rate finds the best of a curve with one peak, within its bounds."""

import math

import pytest
from study.rates import best_rate, next_rate

BOUNDS = {"first": 2e-5, "factor": 2.0, "lowest": 2.5e-6, "highest": 1.6e-4}


def search(score):
    tried = {}
    while (rate := next_rate(tried, **BOUNDS)) is not None:
        tried[rate] = score(rate)
    return tried


@pytest.mark.parametrize("best", [1e-9, 2.5e-6, 1e-5, 2e-5, 4e-5, 1.6e-4, 1.0])
def test_the_peak_is_found_and_has_both_neighbours_within_the_bounds(best):
    tried = search(lambda rate: -abs(math.log(rate / best)))
    expected = min(max(best, 2.5e-6), 1.6e-4)
    assert best_rate(tried) == pytest.approx(expected)
    neighbours = [r for r in (expected / 2, expected * 2) if 2.4e-6 < r < 1.7e-4]
    assert all(any(t == pytest.approx(n) for t in tried) for n in neighbours)
    assert len(tried) == len({round(math.log2(t / 2e-5), 3) for t in tried})


def test_of_equal_scores_the_lower_rate_counts():
    assert best_rate({4e-5: 0.5, 2e-5: 0.5}) == 2e-5
    assert best_rate(search(lambda rate: 0.0)) == pytest.approx(2.5e-6)


def test_the_first_rate_is_tried_first_and_one_rate_is_no_search():
    assert next_rate({}, **BOUNDS) == 2e-5
    assert next_rate({1e-3: 0.1}, 1e-3, 2.0, 1e-3, 1e-3) is None
