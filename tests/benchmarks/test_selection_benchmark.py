"""The authors' selection loop, and that choices are compared."""

import numpy as np
import pytest
from benchmark import selection


def test_selection_is_timed_beside_a_loop_that_finds_the_same_variance():
    ours, loop = selection.table_rows(groups=64, generations=16, kept=4, repeats=3)
    assert loop["speed_up"] == loop["seconds"] / ours["seconds"] > 0
    assert loop["processor_ratio"] == loop["processor_s"] / ours["processor_s"]


def test_choices_of_another_variance_are_noticed():
    rewards = np.float32([[0, 0, 1, 1]])
    selection.assert_equal_variances(rewards, selection.authors_loop(rewards[0], 2)[None], np.array([[1, 3]]))
    with pytest.raises(AssertionError):
        selection.assert_equal_variances(rewards, np.array([[0, 1]]), np.array([[1, 3]]))
