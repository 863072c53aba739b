import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.analysis.curves import rollouts_to_target, time_to_target, tokens_to_target


def curve(*accuracies):
    return [
        {"accuracy": a, "rollouts/generated": 100.0 * i, "tokens/generated": 700.0 * i, "wall_time_s": 1.5 * i}
        for i, a in enumerate(accuracies)
    ]


RISING = curve(0.1, 0.25, 0.5, 0.4, 0.75)


def test_the_first_evaluation_at_or_above_the_target_counts():
    assert rollouts_to_target(RISING, 0.5) == 200  # though it falls again
    assert tokens_to_target(RISING, 0.5) == 1400
    assert time_to_target(RISING, 0.5) == 3.0
    assert rollouts_to_target(RISING, 0.51) == 400
    assert rollouts_to_target(RISING, 0.1) == 0


def test_a_target_never_reached_is_censored():
    assert rollouts_to_target(RISING, 0.8) is None
    assert time_to_target([], 0.0) is None


def test_a_running_mean_does_not_jump_at_a_spike():
    spiky = curve(0.1, 0.1, 0.9, 0.1, 0.2, 0.5, 0.5, 0.5)
    assert rollouts_to_target(spiky, 0.5) == 200
    assert rollouts_to_target(spiky, 0.5, window=3) == 700
    assert rollouts_to_target(curve(0.5), 0.5, window=3) == 0


def test_another_metric():
    assert rollouts_to_target([e | {"greedy_accuracy": 1.0} for e in RISING], 0.9, metric="greedy_accuracy") == 0
    with pytest.raises(KeyError):
        rollouts_to_target(RISING, 0.9, metric="greedy_accuracy")


@given(st.lists(st.floats(0, 1), max_size=9), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_target_never_comes_cheaper(accuracies, a, b):
    low, high = (rollouts_to_target(curve(*accuracies), t) for t in sorted((a, b)))
    assert high is None or (low is not None and low <= high)
