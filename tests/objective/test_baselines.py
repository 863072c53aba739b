import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.errors import UserError
from pods_jax.objective import ADVANTAGES, estimate_advantages

REWARDS = np.float32([[1, 0, 0.35, 1, 0], [0.35] * 5, [2, np.nan, 1, 1, 7]])
LENGTHS = np.array([[3, 9, 1, 0, 4], [2, 2, 5, 5, 1], [6, 2, 8, 1, 3]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]], bool)  # and the NaN does not count
COUNTED = MASK & np.isfinite(REWARDS)
GROUPS = [np.float64(row[counts]) for row, counts in zip(REWARDS, COUNTED, strict=True)]
TOKENS = [row[counts] for row, counts in zip(LENGTHS, COUNTED, strict=True)]


def advantages(estimator, rewards=REWARDS, lengths=LENGTHS, mask=MASK, **options):
    estimate = jax.jit(estimate_advantages, static_argnums=0, static_argnames=("scale_rewards", "ddof", "epsilon"))
    return np.asarray(
        estimate(estimator, jnp.asarray(rewards), jnp.asarray(lengths), mask=jnp.asarray(mask), **options)
    )


def over_tokens(groups):
    """Every token with its sequence's value, in one list."""
    return np.concatenate([np.repeat(g, n) for g, n in zip(groups, TOKENS, strict=True)])


def expected(estimator):
    """One list of advantages a group, for the members that count."""
    centred = [g - g.mean() for g in GROUPS]
    tokens = over_tokens(GROUPS)
    return {
        "grpo": [c / (c.std(ddof=1) + 1e-4) for c in centred],
        "rloo": [np.array([r - np.delete(g, i).mean() for i, r in enumerate(g)]) for g in GROUPS],
        "reinforce_pp": [(g - tokens.mean()) / (tokens.std(ddof=1) + 1e-4) for g in GROUPS],
        "reinforce_pp_baseline": [c / (over_tokens(centred).std(ddof=1) + 1e-4) for c in centred],
        "reinforce_rej": [g * (np.ptp(g) > 0) for g in GROUPS],
    }[estimator]


@pytest.mark.parametrize("estimator", sorted(ADVANTAGES))
def test_estimators_equal_their_definitions(estimator):
    got = advantages(estimator)
    np.testing.assert_allclose(got[COUNTED], np.concatenate(expected(estimator)), rtol=2e-5, atol=1e-6)
    assert not got[~COUNTED].any()


@pytest.mark.parametrize("estimator", sorted(set(ADVANTAGES) - {"reinforce_pp"}))
def test_groups_of_equal_rewards_get_exactly_zero(estimator):
    assert not advantages(estimator)[1].any()


@pytest.mark.parametrize("estimator", ["reinforce_pp", "reinforce_pp_baseline"])
@pytest.mark.parametrize("epsilon", [1e-4, 0.0])
def test_a_batch_of_equal_rewards_gets_exactly_zero(estimator, epsilon):
    assert (advantages(estimator, np.full((3, 5), 0.35, np.float32), epsilon=epsilon) == 0).all()


@pytest.mark.parametrize("estimator", sorted(ADVANTAGES))
@pytest.mark.parametrize("mask", [np.zeros((3, 5), bool), np.eye(3, 5, dtype=bool)])
def test_nothing_and_groups_of_one_are_finite(estimator, mask):
    got = advantages(estimator, mask=mask)
    assert np.isfinite(got).all()
    assert not got[~mask].any()
    if estimator != "reinforce_pp":
        assert not got.any()


@pytest.mark.parametrize("estimator", sorted(ADVANTAGES))
def test_advantages_follow_permutations_of_members_and_groups(estimator):
    order = np.array([3, 0, 4, 2, 1])
    moved = advantages(estimator, *(x[[2, 0, 1]][:, order] for x in (REWARDS, LENGTHS, MASK)))
    np.testing.assert_allclose(moved, advantages(estimator)[[2, 0, 1]][:, order], rtol=1e-4, atol=1e-6)


def test_an_unknown_estimator_is_an_error():
    with pytest.raises(UserError, match="unknown advantage estimator 'rlo': did you mean 'rloo'"):
        estimate_advantages("rlo", jnp.zeros((1, 2)), jnp.ones((1, 2), int))
