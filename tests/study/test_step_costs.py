"""Step costs: interleaved, by phase, and the fastest micro-batch of each."""

import pytest
from scipy import stats
from study.step_costs import fastest, median_interval, time_steps

from pods_jax.config.schema import from_mapping


def test_every_config_is_timed_as_often_and_phases_fit_into_the_step(tiny):
    config, problems = from_mapping(tiny)
    assert not problems
    rounds = []
    times = time_steps({"a": config, "b": config}, 3, rounds.append)
    assert {name: len(t) for name, t in times.items()} == {"a": 3, "b": 3}
    assert rounds == [1, 2, 3, 4, 5]
    for seconds in (*times["a"], *times["b"]):
        assert 0 < sum(s for phase, s in seconds.items() if phase != "step") <= seconds["step"]


def test_the_micro_batch_with_the_least_median_step_counts():
    slow = [{"sample": 1.0, "update": 1.0, "step": 2.1}] * 3
    quick = [{"sample": 1.0, "update": u, "step": 1.1 + u} for u in (0.4, 0.5, 9.0)]
    found = fastest({64: slow, 128: quick})
    assert found["micro_batch"] == 128
    assert found["seconds"] == pytest.approx({"sample": 1.0, "update": 0.5, "step": 1.6})
    assert found["step_interval"] is None  # of three steps
    assert found["step_by_micro_batch"] == pytest.approx({64: 2.1, 128: 1.6})


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    assert median_interval(range(1, 16)) == (4, 12)  # 1 - 2 (1 + 15 + 105 + 455) / 2^15 = 96.5 %
    assert median_interval(range(5)) is None
    for num in range(6, 40):
        low, high = median_interval(range(num))
        assert low + high == num - 1
        assert 2 * stats.binom.cdf(low, num, 0.5) <= 0.05 < 2 * stats.binom.cdf(low + 1, num, 0.5)
