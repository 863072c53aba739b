"""Seeds of accepted warm starts: measured once, in order, and remembered."""

import pytest
from study.warm_starts import LIMIT, accepted

from pods_jax.errors import UserError


def test_the_first_seeds_within_the_bounds_are_taken_and_none_is_measured_twice(tmp_path):
    asked = []

    def measure(seed):
        asked.append(seed)
        return (0.01, 0.05, 0.2, 0.15, 0.1)[seed]

    file = tmp_path / "starts.json"
    assert accepted(file, "a", (0.05, 0.15), 2, measure) == [1, 3]
    assert accepted(file, "a", (0.05, 0.15), 2, measure) == [1, 3]
    assert asked == [0, 1, 2, 3]
    assert accepted(file, "a", (0.05, 0.15), 3, measure) == [1, 3, 4]
    assert asked == [0, 1, 2, 3, 4]


def test_other_warm_starts_and_bounds_that_none_meets_are_refused(tmp_path):
    file = tmp_path / "starts.json"
    accepted(file, "a", (0, 1), 1, lambda seed: 0.5)
    with pytest.raises(UserError, match="another definition"):
        accepted(file, "b", (0, 1), 1, lambda seed: 0.5)
    with pytest.raises(UserError, match=f"1 of the first {LIMIT}"):
        accepted(file, "a", (0.4, 0.6), 2, lambda seed: 0.0)
