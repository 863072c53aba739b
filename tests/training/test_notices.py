"""A notice is said once while it holds, and again when it comes back."""

import dataclasses

import pytest

from pods_jax.config.schema import Config
from pods_jax.training.notices import WINDOW, Notices, standing

FINE = {"completions/clipped_ratio": 0.1, "frac_reward_zero_std": 0.3, "reward": 0.5}


def said(steps):
    notices = Notices(Config())
    return [line for changes in steps for line in notices.of(FINE | changes)]


def test_nothing_is_said_of_a_run_that_learns():
    assert said([{}] * 20) == []


def test_everything_truncated():
    (line,) = said([{"completions/clipped_ratio": 1.0}] * 20)
    assert line.startswith("100% of the completions are cut at rollout.max_completion_length = 512 tokens")


def test_rewards_that_are_all_equal():
    (line,) = said([{"frac_reward_zero_std": 1.0, "reward": 0.0}] * 20)
    assert "no prompt's rewards differed, so that nothing was learnt (mean reward 0): see" in line
    (line,) = said([{"frac_reward_zero_std": 1.0, "grad_norm": 0.5}] * 20)  # of reinforce_pp, or a KL in the loss
    assert "no prompt's rewards differed (mean reward 0.5): see" in line
    assert said([{"frac_reward_zero_std": 1.0}] * (WINDOW - 1)) == []


def test_what_comes_back_is_said_again():
    bad = [{"frac_reward_zero_std": 1.0}] * 10
    assert len(said([*bad, *[{}] * 10, *bad])) == 2


def test_numbers_that_are_missing_say_nothing():
    assert said([{"completions/clipped_ratio": float("nan"), "frac_reward_zero_std": float("nan")}] * 10) == []


def test_a_run_that_draws_from_the_policy_has_no_standing_notice():
    assert standing(Config()) == []


@pytest.mark.parametrize(
    ("objective", "effect"),
    [
        ({}, "takes no account of it"),
        ({"importance_sampling_cap": 2.0}, "takes account of it"),
        ({"importance_sampling_floor": 0.5}, "takes account of it"),
        ({"old_logprobs": "behaviour"}, "takes account of it"),
    ],
    ids=str,
)
def test_a_reshaped_draw_is_said_at_the_start(objective, effect):
    config = Config()
    config = dataclasses.replace(
        config,
        rollout=dataclasses.replace(config.rollout, top_k=50, min_p=0.1),
        objective=dataclasses.replace(config.objective, **objective),
    )
    (line,) = standing(config)
    assert line.startswith("rollout.top_k = 50, rollout.min_p = 0.1: ")
    assert effect in line
