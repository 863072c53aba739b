import numpy as np
import pytest
from simulated_world import World

from pods_jax.allocation.base import Accounts, age_metrics, generator, num_rollouts
from pods_jax.groups import Prompt, Request, joined


def some_group(count, version=0, first=0):
    world = World([0.5])
    world.version = version
    return world.group(Request(Prompt(0, 0, "", "", "", ()), count, first=first))


def test_generators_are_named():
    names = [(seed, use, *at) for seed in (0, 1) for use in ("a", "b") for at in ((1, 2), (2, 1))]
    assert len({generator(*name).random() for name in names}) == len(names)
    assert generator(0, "a", 1, 2).random() == generator(0, "a", 1, 2).random()


def test_accounts_count_by_name_and_refuse_others():
    accounts = Accounts(["rounds"])
    accounts.add("rounds")
    accounts.add("rounds", 2)
    accounts.add_rollouts("rollouts_generated", [some_group(3), some_group(4)])
    assert accounts.metrics(held=[some_group(5)]) == {
        "allocation/rollouts_generated": 7.0, "allocation/rollouts_handed_over": 0.0,
        "allocation/rollouts_discarded": 0.0, "allocation/rounds": 3.0, "allocation/rollouts_held": 5.0,
    }  # fmt: skip
    with pytest.raises(KeyError):
        accounts.add("round")
    other = Accounts(["rounds"])
    other.load_state_dict(accounts.state_dict())
    accounts.add("rounds")  # the state that was taken is not of one piece with the counters
    assert other.counts["rounds"] == 3


def test_ages_are_between_a_groups_first_rollout_and_its_last():
    young = some_group(2, version=3)
    old = joined([some_group(2, version=1), some_group(2, version=5, first=2)])
    assert age_metrics([young, old]) == {"allocation/age_mean": 2.0, "allocation/age_max": 4.0}
    assert age_metrics([]) == {"allocation/age_mean": 0.0, "allocation/age_max": 0.0}
    assert num_rollouts([young, old]) == 6
    assert np.ptp(old.policy_versions) == 4
