import asyncio
import datetime
import math

import my_rewards
import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool, Verdict, check_gold, verify
from pods_jax.rewards.callables import call, check_function


def test_columns_arrive_and_none_is_nan():
    my_rewards.SEEN.clear()
    values = call("my_rewards:brevity", ["ab", ""], prompts=["p", "q"], gold=["1", "2"])
    assert values[0] == 0.5
    assert math.isnan(values[1])
    assert my_rewards.SEEN == {"prompts": ["p", "q"], "gold": ["1", "2"]}


def test_columns_may_have_any_name():
    """Also those of the arguments: the completions stay what the policy wrote."""
    my_rewards.SEEN.clear()
    columns = {"name": ["Ann"], "completions": ["another model's"], "columns": [1]}
    assert call("my_rewards:brevity", ["ab"], **columns) == [0.5]
    assert my_rewards.SEEN == {"name": ["Ann"], "columns": [1]}
    check_function("my_rewards:brevity", "5", columns)


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
        ("my_rewards:a_scalar", "gave 1.0, expected a list"),
        ("my_rewards:nothing_at_all", "gave None, expected a list"),
        ("my_rewards:a_mapping", "gave {'a': 1.0}, expected a list"),
        ("my_rewards:a_text", "gave '1', expected a list"),
        ("my_rewards:enormous", "gave 1000.*, expected a finite number"),
        ("my_rewards:more_digits_than_python_writes", "gave a very large int, expected a finite number"),
        ("my_rewards:nested", r"gave \[1.0\], expected a finite number"),
        ("my_rewards:raises", r"raised ZeroDivisionError: division by zero \(.*my_rewards.py:\d+\)"),
        ("my_rewards:needs_targets", "raised TypeError: .* missing 3 required"),
    ],
)
def test_mistakes_are_named(name, message):
    with pytest.raises(UserError, match=message) as raised:
        call(name, ["a"])
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_coroutines_are_awaited_with_and_without_a_loop():
    async def within_a_loop():
        return call("my_rewards:awaited", ["a", "abc"])

    assert call("my_rewards:awaited", ["a", "abc"]) == [1.0, 3.0]
    assert asyncio.run(within_a_loop()) == [1.0, 3.0]


def test_arrays_are_lists_of_numbers():
    assert call("my_rewards:an_array", ["a", "b"]) == [1.0, 1.0]


def test_a_function_is_checked_on_one_example_with_all_its_columns():
    check_function("my_rewards:needs_targets", "5", {"target": 0})
    with pytest.raises(UserError, match="missing 1 required positional argument: 'target'"):
        check_function("my_rewards:needs_targets", "5", {})
    with pytest.raises(UserError, match="'my_rewards:raises' raised ZeroDivisionError"):
        check_gold("5", "my_rewards:raises")
    with pytest.raises(UserError, match=r"'my_rewards:a_scalar' gave 1\.0"):
        check_gold("5", "my_rewards:a_scalar")


def test_as_a_task_it_gets_the_columns_of_its_output_and_its_exceptions_cost_one_output():
    columns = {"prompts": ["p"] * 2, "completion_ids": [[1, 2], [1]], "target": [2, 2], "when": [datetime.date.min] * 2}
    with RewardPool(num_workers=1) as pool:
        verdicts = pool.score(["a", "b"], ["", ""], "my_rewards:needs_targets", columns=columns)
        assert [verdict.reason for verdict in verdicts] == ["match", "mismatch"]
        assert pool.score(["a"], [""], "my_rewards:raises")[0].reason == "crashed"
        assert pool.score(["ab"], [""], "my_rewards:awaited")[0].correct


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
        assert verdict.reason in ("timeout", "wall timeout")  # the latter where the machine is busy
        with pytest.raises(UserError, match="expected module:function"):
            pool.score(["a"], ["b"], "my_rewards:nothing")
