import math

import my_rewards
import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool, Verdict, check_gold, verify
from pods_jax.rewards.callables import call


def test_columns_arrive_and_none_is_nan():
    my_rewards.SEEN.clear()
    values = call("my_rewards:brevity", ["ab", ""], prompts=["p", "q"], gold=["1", "2"])
    assert values[0] == 0.5
    assert math.isnan(values[1])
    assert my_rewards.SEEN == {"prompts": ["p", "q"], "gold": ["1", "2"]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_rewards:nothing", "expected module:function"),
        ("no_such_module:f", "expected module:function"),
        (":", "expected module:function"),
        ("my_rewards:CONSTANT", "is not callable"),
        ("my_rewards:too_few", "gave 0 values for 1 completions"),
        ("my_rewards:infinite", "gave inf"),
        ("my_rewards:words", "gave 'good', expected a finite number"),
    ],
)
def test_mistakes_are_named(name, message):
    with pytest.raises(UserError, match=message) as raised:
        call(name, ["a"])
    assert name in str(raised.value)


def test_a_function_may_be_the_verifier_and_may_hang():
    assert verify("5", "5", "my_rewards:equals_gold")
    assert not verify("5", "6", "my_rewards:equals_gold")
    check_gold("", "my_rewards:equals_gold")
    with RewardPool(num_workers=1) as pool:
        assert pool.score(["a", "ab", ""], [""] * 3, "my_rewards:brevity") == [
            Verdict(True, "a", "match"),
            Verdict(False, "ab", "mismatch"),
            Verdict(False, None, "no answer"),
        ]
        [verdict] = pool.score(["a"], ["b"], "my_rewards:hangs", deadline_s=0.5)
        assert verdict.reason == "timeout"
        with pytest.raises(UserError, match="expected module:function"):
            pool.score(["a"], ["b"], "my_rewards:nothing")
